#!/bin/sh
# What a GPU says of this code, in at most 25 minutes (README.md here).
#   sh experiments/gpu/run.sh                 all parts
#   sh experiments/gpu/run.sh step decode     these alone, each at most 8 minutes
#   sh experiments/gpu/run.sh --tiny          tiny sizes, on a CPU too
# From the environment: PYTHON; RESULTS and TABLE, where they are written; MODELS, a folder for what is made once;
# MINUTES, after which a part begins no measurement. What a file of results has is not measured again.
set -eu
cd "$(dirname "$0")/../.."
PYTHON=${PYTHON:-python3}
MODELS=${MODELS:-${TMPDIR:-/tmp}/rl-qg-gpu}
SIZE=full
if [ "${1:-}" = --tiny ]; then SIZE=tiny; shift; fi
if [ "$SIZE" = full ]; then
    RESULTS=${RESULTS:-experiments/gpu/results}
    TABLE=${TABLE:-experiments/speed/gpu.md}
else
    RESULTS=${RESULTS:-$MODELS/tiny/results}
    TABLE=${TABLE:-$RESULTS/gpu.md}
fi
[ $# -gt 0 ] || set -- parity step decode rewards launch server curve
export PYTHONPATH=".:experiments/speed:experiments/serving${PYTHONPATH:+:$PYTHONPATH}"
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export TRANSFORMERS_VERBOSITY=error PYTHONUNBUFFERED=1

"$PYTHON" experiments/gpu/packages.py "$SIZE" "$@"
END=$(($(date +%s) + 25 * 60))
failed=0
for part in "$@"; do
    case $part in  # its script, and minutes after which it begins no measurement
        parity) script=parity minutes=2 ;;
        step) script=steps minutes=6 ;;
        decode) script=decoding minutes=5 ;;
        rewards) script=reward_speed minutes=3 ;;
        launch) script=launches minutes=3 ;;
        server) script=clients minutes=2 ;;
        curve) script=curve minutes=4 ;;
    esac
    left=$((END - $(date +%s)))
    [ "$left" -lt 480 ] || left=480
    if [ "$left" -lt 10 ]; then echo "$part: the 25 minutes are over; the same command goes on here"; failed=1; break; fi
    echo "== $part"
    timeout -k 10 "$left" "$PYTHON" "experiments/gpu/$script.py" --size "$SIZE" --models "$MODELS" \
        --minutes "${MINUTES:-$minutes}" --output "$RESULTS/$part.json" || { failed=1; echo "$part: not whole"; }
done
"$PYTHON" experiments/gpu/table.py --results "$RESULTS" --output "$TABLE"
exit "$failed"
