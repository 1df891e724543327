#!/usr/bin/env bash
# Three seeds of the quickstart and a table of what they reached. About 5 minutes a seed on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
for seed in 13 14 15; do
  rl-qg pipeline preset=quickstart seed=$seed output_dir=runs/quickstart-$seed
done
python experiments/quickstart/collect.py runs/quickstart-{13,14,15} --output experiments/quickstart/results.json
rl-qg report runs/quickstart-{13,14,15} --output runs/quickstart-seeds.html
