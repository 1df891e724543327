"""QA-based evaluation (`rl-qg qa-evaluate`): readers trained on synthetic questions alone, scored on human ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, NOT_NEGATIVE, POSITIVE, SEED, Section, key


@dataclass
class ReaderTrials(Section):
    """Random trials of a reader's training on a part of the synthetic questions; the best has the highest sum of exact
    match and F1 on other ones. The defaults are those of lmqg (Ushio et al., ACL Findings 2023), but for `count`.
    """

    count: int = key(0, "trials before each training (10 in lmqg); 0: none, the keys of qa count", limits=NOT_NEGATIVE)
    train: int = key(1000, "questions that a trial trains on, of whole passages", limits=COUNT)
    validation: int = key(500, "questions of other passages that judge it", limits=COUNT)
    lowest_rate: float = key(1e-6, "of the learning rates, drawn evenly on the logarithmic scale", limits=POSITIVE)
    highest_rate: float = key(1e-4, "of the learning rates", limits=POSITIVE)
    epochs: list[int] = key([1, 2, 3, 4, 5], "numbers of passes that are drawn from")
    batch_sizes: list[int] = key([4, 8, 16, 32, 64], "numbers of windows that are drawn from")
    seed: int = key(42, "of the draws and of the questions", limits=SEED)

    def faults(self) -> Iterator[str]:
        """Choices and limits."""
        yield from super().faults()
        if self.lowest_rate > self.highest_rate:
            yield f"lowest_rate={self.lowest_rate} is above highest_rate={self.highest_rate}"
        for name in ("epochs", "batch_sizes"):
            values = getattr(self, name)
            if not values or min(values) < 1:
                yield f"{name}={values}: give numbers of at least 1, such as {name}=[1,2]"


@dataclass
class QAEvaluateSettings(Section):
    """Readers trained on the questions of generators alone, and scored on human questions
    (`rl_qg.evaluation.qa_evaluation`). The reader itself is that of the section `qa`.
    """

    data: Any = key("", "human questions that every reader is scored on, in the forms of data.train")
    questions: Any = key(
        "",
        "questions of a generator with passages and answers, in the forms of data.train or of generate; of several by "
        "name: {ce: ce.jsonl, scst: [scst-1.jsonl, scst-2.jsonl]}, where several files of one are its seeds",
    )
    output: str = key("", "a .json file; its page and the folder of the readers lie beside it, under the same name")
    max_questions: int | None = key(None, "questions of each file used, a seeded sample; null: all", limits=COUNT)
    max_context: int | None = key(None, "characters of the longest passage used; null: any", limits=COUNT)
    max_data: int | None = key(None, "human questions used, a seeded sample; null: all", limits=COUNT)
    seed: int = key(42, "of the samples", limits=SEED)
    trials: ReaderTrials = key(ReaderTrials(), "random trials of the reader's training")
    evaluations: Any = key(
        None,
        "evaluate.json files, or their folders, with metrics of the same generators under the same names, to be "
        "correlated with exact match and F1; null: none",
    )
    keep_readers: bool = key(False, "keep the readers' weights; false: only their answers and scores")
    resamples: int = key(1000, "bootstrap resamples of passages and of seeds, for intervals and tests", limits=COUNT)
