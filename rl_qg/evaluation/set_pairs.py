"""Questions of every file and human ones, passage by passage, with the pairs of the assignment: what a page shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewards.question_sets import Multi
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.evaluation.set_analysis import PassageSets, multi_of
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.parallel_writer import cannot_write

FILE = "set_pairs.json"


def set_pairs(sets: PassageSets, multi: Multi, passages: int) -> list[dict[str, Any]]:
    """So many passages, spread evenly over all: `context`, `references`, and for each file (`files`) its `questions`
    and `pairs`: place of the question, place of the reference, score, by the largest sum.
    """
    step = max(1, len(sets.contexts) // passages)
    places = [*range(0, len(sets.contexts), step)][:passages]
    contexts = [sets.contexts[place] for place in places]
    references = [sets.references[place] for place in places]
    shown: list[dict[str, Any]] = [
        {"context": context, "references": human, "files": {}}
        for context, human in zip(contexts, references, strict=True)
    ]
    for name, of_file in sets.predictions.items():
        questions = [of_file[place] for place in places]
        for row, asked, pairs in zip(shown, questions, multi.pairs(questions, references, contexts), strict=True):
            row["files"][name] = {"questions": asked, "pairs": [list(pair) for pair in pairs]}
    return shown


def write_set_pairs(
    folder: Path, sets: PassageSets, metrics: Mapping[str, Reward], left_out: Mapping[str, str], passages: int
) -> None:
    """Write `set_pairs.json`: the label of the first metric that judges sets, its signature, and `set_pairs` by it.

    Raises:
        InputError: no metric judges sets.
    """
    label = next((label for label in metrics if label not in left_out), None)
    if label is None:
        raise InputError("page=…: no metric compares questions with references; add one, such as metrics=[rouge_l]")
    multi = multi_of(metrics[label])
    record = {"metric": label, "signature": multi.signature, "of": len(sets.contexts)}
    try:
        write_json(folder / FILE, record | {"passages": set_pairs(sets, multi, passages)})
    except OSError as error:
        raise cannot_write(folder, error) from None
