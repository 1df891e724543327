#!/usr/bin/env bash
# Five seeds of the quickstart and a table of what they reached. About 5 minutes a seed on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
export OMP_NUM_THREADS=1  # results do not depend on the number of cores then
for seed in 13 14 15 16 17; do
  rl-qg pipeline preset=quickstart seed=$seed output_dir=runs/quickstart-$seed
done
python experiments/quickstart/collect.py runs/quickstart-{13,14,15,16,17} --output experiments/quickstart/results.json
rl-qg report runs/quickstart-{13,14,15,16,17} --output runs/quickstart-seeds.html
