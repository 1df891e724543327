"""The passages of `data.unlabelled`: answers as they are given, or proposed, so that training can use them."""

import logging
from collections import deque
from dataclasses import replace
from pathlib import Path

from accelerate import PartialState

from rl_qg.commands.load_miniatures import answers_with_miniature
from rl_qg.data.examples import QAExample
from rl_qg.data.passages import Passages, has_answers
from rl_qg.data.reading import source_names
from rl_qg.data.sources import raw_records
from rl_qg.data.splits import Splits, answer_spans, with_additional_spans
from rl_qg.generation.answers.stage import method, propose_answers, report_line
from rl_qg.runtime.processes import from_main
from rl_qg.settings import Settings

log = logging.getLogger(__name__)


def check_unlabelled(settings: Settings, state: PartialState) -> None:
    """Read the files of `data.unlabelled` completely, and load what proposes answers if one of them needs answers.

    Raises:
        InputError: a file is missing or malformed, or the method of `answers.method` is not available.
    """

    def reads_passages() -> bool:
        sources = source_names(settings.data.unlabelled)
        answered = [source for source in sources if has_answers(source)]
        for source in answered:
            deque(raw_records(source, "train", unlabelled=True), maxlen=0)
        unanswered = [source for source in sources if source not in answered]
        if unanswered:
            deque(Passages(unanswered, settings.answers.passages), maxlen=0)
        return bool(unanswered)

    if from_main(state, reads_passages):
        method(answers_with_miniature(settings), state)


def with_unlabelled(settings: Settings, splits: Splits, state: PartialState) -> Splits:
    """The splits with the answers of `data.unlabelled` among the passages without questions.

    Passages without answers get proposed ones, which are written to `answers.jsonl` in the run folder; a complete
    file is used again. Questions in the files are not used. Passages of the validation data are left out, and so are
    answers that the training data have already.

    Raises:
        InputError: as `propose_answers` and `with_additional_spans`.
    """
    sources = source_names(settings.data.unlabelled)
    if not sources:
        return splits
    answered = from_main(state, lambda: [source for source in sources if has_answers(source)])
    files, unanswered = list(answered), [source for source in sources if source not in answered]
    if unanswered:
        output = Path(settings.output_dir) / "answers.jsonl"
        log.info("proposing answers in %s", ", ".join(unanswered))
        report = propose_answers(
            Passages(unanswered, settings.answers.passages, splits.held_out),
            output,
            settings=answers_with_miniature(settings),
            state=state,
            accept_changed_data=settings.accept_changed_data,
        )
        log.info(report_line(report))
        files.append(str(output))
    if not files:
        return splits
    known = answer_spans([*splits.gold, *splits.unlabelled])
    stream = with_additional_spans(known, files, splits.held_out)
    faults = stream.report.get("malformed")
    report = {**splits.report, **({"unlabelled": {"malformed": faults}} if faults else {})}
    added = _with_shared_texts(list(stream)[len(known) :])
    return replace(splits, unlabelled=[*splits.unlabelled, *added], report=report)


def _with_shared_texts(examples: list[QAExample]) -> list[QAExample]:
    """The same examples with one copy of each passage in memory."""
    texts: dict[str, str] = {}
    return [replace(example, context=texts.setdefault(example.context, example.context)) for example in examples]
