"""What reinforcement with `usability` changed: greedy questions about answers that were held out, by each generator.

    python experiments/usability/reinforced.py --answers ANSWERS/test.json --output experiments/usability/reward.json \
        --human HUMAN.questions.json before=START best_of_n=BEST/scst scst=RUN/scst

HUMAN.questions.json is what experiments/real-generator/measure.py wrote about generators of the same names: questions
about other articles, each beside a human one, are compared by ROUGE-L, METEOR and the reader. The first generator is
the one that the others started from. For each: the mean of its reward (usability), the exact match of the reader, the
shares that are well formed and whose names all stand in the passage, words, different questions, and the mean
differences from the first; intervals are over texts. OUTPUT.questions.jsonl has the questions, which are about texts
from elsewhere and not part of this repository.
"""

import argparse
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from texts import lines
from train import RIGHT, USABLE

import rewards
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import read_role
from rl_qg.evaluation.compare_generators import greedy_questions
from rl_qg.runtime.files import read_json, write_json, write_json_lines
from rl_qg.settings import DataSettings
from rl_qg.stats.intervals import PassageDraws, mean_interval, paired_interval

READINGS = Path(__file__).parent / "reinforced-readings.jsonl"
BATCH, TOKENS, READER = 50, 32, "packaged:english/reader"
SIX = 6  # usable ones of the ten best pairs of a document


def values_of(questions: Sequence[str], rows: Sequence[QAExample]) -> dict[str, list[float]]:
    """Of each question."""
    given = {"contexts": [row.context for row in rows], "answers": [row.answers[0].text for row in rows]}
    reader = rewards.ReaderScore(reader_path(READER), max_length=256, stride=64).score(questions, **given)
    return {
        "usability": rewards.load("usability", model=reader_path(READER)).score(questions, **given).scores,
        "exact_match": list(reader.parts["exact_match"]),
        "form": rewards.load("form").score(questions, **given).scores,
        "names": rewards.load("faithfulness").score(questions, **given).scores,
        "words": [float(len(question.split())) for question in questions],
    }


def against_human(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[float]]:
    """Of each question of a generator that measure.py has written."""
    questions, references = [row[name] for row in rows], [[row["human"]] for row in rows]
    found = {
        metric: rewards.load(metric).score(questions, references=references).scores for metric in ("rouge_l", "meteor")
    }
    return found | {"exact_match": [row["exact"][name]["reader"] for row in rows]}


def compared(values: Mapping[str, Mapping[str, Sequence[float]]], texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Means of each generator's measures, and differences from the first one's, with intervals over texts."""
    draws, first = PassageDraws(texts), next(iter(values))
    found: dict[str, dict[str, Any]] = {}
    for name, measures in values.items():
        found[name] = {measure: asdict(mean_interval(of_each, draws)) for measure, of_each in measures.items()}
        if name != first:
            found[name][f"over {first}"] = {
                measure: asdict(paired_interval(of_each, values[first][measure], draws))
                for measure, of_each in measures.items()
            }
    return found


def graded(kind: str, field: str) -> dict[str, Any]:
    """How two readers graded pairs without knowing whose they are; `field` of a pair says which generators made it.
    `in_tests` are usable pairs about the documents of the tests, `six` those
    documents with at least six, and `documents_with_six` all of these.
    """
    rows = [row for row in lines(READINGS) if row["kind"] == kind]
    alike = [len({grade >= USABLE for grade in row["grades"]}) == 1 for row in rows]
    found: dict[str, Any] = {"pairs": len(rows), "agreement": fmean(alike)}
    for name in dict.fromkeys(name for row in rows for name in row[field]):
        of_name = [row for row in rows if name in row[field]]
        found[name] = {"pairs": len(of_name)}
        for reader, which in enumerate(("first", "second")):
            right = sum(row["grades"][reader] >= RIGHT for row in of_name)
            usable = Counter(row["text"] for row in of_name if row["grades"][reader] >= USABLE)
            of_tests = [number for text, number in usable.items() if "." in text]  # they go by the names of files
            found[name][which] = {"usable": usable.total(), "right": right}
            found[name][which] |= {"in_tests": sum(of_tests), "six": sum(number >= SIX for number in of_tests)}
            found[name][which]["documents_with_six"] = sum(number >= SIX for number in usable.values())
    return found


def shares_of_answers() -> dict[str, dict[str, Any]]:
    """Of greedy questions about held-out answers the usable and the right ones, by the mean of both readers."""
    rows = [row for row in lines(READINGS) if row["kind"] == "greedy"]
    grades = {(row["text"], *row["answer"], name): row["grades"] for row in rows for name in row["by"]}
    items = list(dict.fromkeys(key[:-1] for key in grades))
    values = {
        name: {
            what: [fmean(one >= grade for one in grades[*item, name]) for item in items]
            for what, grade in (("usable", USABLE), ("right", RIGHT))
        }
        for name in ("best_of_n", "before", "scst", "rounded")
    }
    texts = [item[0] for item in items]
    over_best = compared({name: values[name] for name in ("best_of_n", "scst")}, texts)["scst"]["over best_of_n"]
    found = compared({name: values[name] for name in ("before", "best_of_n", "scst", "rounded")}, texts)
    found["scst"]["over best_of_n"] = over_best
    return found


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The measures of the generators; their questions are written beside the output."""
    rows = list(read_role(DataSettings(train=given.answers), "train", allow_unlabelled=True).examples)
    random.Random(0).shuffle(rows)
    rows = rows[: given.number]
    models = dict(one.split("=", 1) for one in given.generators)
    questions = {
        name: greedy_questions(generator_path(path), rows, name, TOKENS, BATCH) for name, path in models.items()
    }
    values = {name: values_of(texts, rows) for name, texts in questions.items()}
    found = compared(values, [row.title for row in rows])
    first = next(iter(models))
    for name, texts in questions.items():
        found[name] |= {"different": len(set(texts)), "changed": sum(map(str.__ne__, texts, questions[first]))}
    result: dict[str, Any] = {"answers": len(rows), "generators": found}
    if given.human:
        human = read_json(given.human)
        result["human"] = compared(
            {name: against_human(human, name) for name in models}, [row["context"] for row in human]
        )
    write_json_lines(
        given.output.with_suffix(".questions.jsonl"),
        (
            {"text": row.title, "passage": row.context, "answer": row.answers[0].text}
            | {name: texts[at] for name, texts in questions.items()}
            for at, row in enumerate(rows)
        ),
    )
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("generators", nargs="*", metavar="NAME=MODEL", help="none: count the readings alone again")
    parser.add_argument("--answers")
    parser.add_argument("--human", type=Path)
    parser.add_argument("--number", type=int, default=1000)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    result = measured(given) if given.generators else read_json(given.output)
    result["read"] = {"ask": graded("ask", "scores"), "greedy": graded("greedy", "by"), "shares": shares_of_answers()}
    # By the scores of other classifiers, and by generators of the second and third round.
    result["read"] |= {kind: graded(kind, "by") for kind in ("retaught", "third", "greedy_third", "fourth", "fifth")}
    write_json(given.output, result)


if __name__ == "__main__":
    main()
