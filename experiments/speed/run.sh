#!/bin/sh
# The numbers of README.md in this folder, about an hour on two cores; "zen4" is the processor of the README, "avx2" what
# it is limited to. The tables of other processors are of earlier runs. SHARED holds golden/models and data/squadshifts.
set -eu
cd "$(dirname "$0")/../.."
SHARED=${SHARED:-../shared}
PYTHON=${PYTHON:-.venv/bin/python}
OUT=experiments/speed/results
mkdir -p "$OUT"
export PYTHONPATH=. TRANSFORMERS_VERBOSITY=error
measure() { name=$1; shift; "$PYTHON" experiments/speed/metrics.py --shared "$SHARED" "$@" --output "$OUT/$name.json"; }

measure qrelscore qrelscore --contexts 64 --plain 3
measure bartscore bartscore --contexts 64 --plain 6 --repetitions 3
measure qascore qascore --contexts 8 --plain 2
measure qrelscore-bfloat16 qrelscore --contexts 64 --dtype bfloat16
measure bartscore-bfloat16 bartscore --contexts 64 --dtype bfloat16 --repetitions 3
measure qascore-bfloat16 qascore --contexts 8 --dtype bfloat16
measure bartscore-8-contexts bartscore --contexts 8 --repetitions 3    # memory against the number of rows
"$PYTHON" experiments/speed/reader.py --shared "$SHARED" --contexts 3 --pairs 4 --output "$OUT/reader.json"
"$PYTHON" experiments/speed/products.py --shared "$SHARED" --output "$OUT/products.json"
few_rows() { "$PYTHON" experiments/speed/few_rows.py --threads 2 --pairs 3 --output "$OUT/$1.json"; }
few_rows few-rows-zen4
ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 few_rows few-rows-avx2
"$PYTHON" experiments/speed/half_products.py --output "$OUT/half-products.json"
"$PYTHON" experiments/speed/half_models.py --shared "$SHARED" --output "$OUT/half-models.json"
"$PYTHON" experiments/speed/precision.py --shared "$SHARED" --output "$OUT/precision.json"
for batch in 4 16; do    # a self-critical step; quarter of an hour
    step() { "$PYTHON" experiments/speed/step.py --naive "$SHARED/bench/naive_scst.py" --batch "$batch" "$@"; }
    counted=$((batch == 4 ? 3 : 1))
    step --rounds 1 --steps $counted --output "$OUT/step-$batch-float32-zen4.json"
    step --rounds 1 --steps $counted --precision bf16 --reward-dtype bfloat16 --output "$OUT/step-$batch-bfloat16-zen4.json"
done
batch=4
four() { step --rounds 1 --steps 2 --samples 4 --baseline leave_one_out "$@"; }
four --output "$OUT/step-4-float32-zen4-samples-4.json"
four --precision bf16 --reward-dtype bfloat16 --output "$OUT/step-4-bfloat16-zen4-samples-4.json"
roofline() { "$PYTHON" experiments/speed/roofline.py --batch 4 "$@"; }    # where a step's time goes
roofline --output "$OUT/roofline-4-float32-zen4.json"
roofline --precision bf16 --reward-dtype bfloat16 --output "$OUT/roofline-4-bfloat16-zen4.json"
# From a command to its first work, a quarter of an hour; BEFORE is a checkout to compare with
"$PYTHON" experiments/speed/start.py --output "$OUT/start.json" --runs 4 ${BEFORE:+--before "$BEFORE"}
