"""How many questions the filters of near duplicates drop, by words and then by meaning.

    rl-qg generate model.path=packaged:english data.train=DATA/new_wiki-test.json data.max_train=250 \
        num_beams=4 keep=4 output=questions.jsonl
    python experiments/augmentation/same_meaning.py --questions questions.jsonl --gold DATA/new_wiki-test.json \
        --encoder all-MiniLM-L6-v2

DATA is the folder of experiments/real-generator/prepare.py. The numbers stand in docs/how-to/augment.md.
"""

import argparse
from pathlib import Path

from rl_qg.augmentation.augment import build_filters
from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.funnel import FilterResources, Funnel
from rl_qg.data.splits import read_role
from rl_qg.settings import DataSettings

BY_WORDS = ("gold_duplicates", "duplicates", "near_duplicates")
GOLD = 250  # human questions, the first ones, whose answers are asked about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--gold", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0.95, 0.9, 0.85])
    given = parser.parse_args()
    gold = read_role(DataSettings(train=given.gold), "train").examples[:GOLD]
    for threshold in given.thresholds:
        by_meaning = {"same_meaning": {"encoder": given.encoder, "threshold": threshold}}
        filters = build_filters({name: {} for name in BY_WORDS} | by_meaning)
        funnel = Funnel(filters, Candidates(given.questions), FilterResources(gold=gold))
        for one in filters:
            funnel.apply(one)
        print(threshold, dict(funnel.counts))


if __name__ == "__main__":
    main()
