"""Generation: a trained generator and passages with answers -> `questions.jsonl`.

Examples are read when they are needed. Of each `WINDOW` of them those with the longest passages come first, so that a
batch holds little padding; the file has them in this order. Memory does not grow with the number of examples. Neither
beams nor samples depend on the number of processes. After a kill the same command, with any number of processes, cuts
the file at its last whole batch and continues. Parts (`rl_qg.data.parts`) number the examples in this order.
"""

import hashlib
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from rl_qg.data.examples import QAExample
from rl_qg.data.layouts import rows as stored_rows
from rl_qg.data.parts import DataPart, Parts, StageRows
from rl_qg.data.streaming import Examples
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record
from rl_qg.runtime.ranks import OutOfMemoryRetry, from_main
from rl_qg.runtime.resumable_lines import NO_SOURCES, Position, ResumableLines, Work, begins_with, json_line, note_path
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.settings import GenerateSettings

DIGITS = 6  # significant ones of a reward in the file; rewards that are equal then keep the order of their probability
WINDOW = 4096  # examples that are held in memory and sorted together
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reranker:
    """Orders the candidates of an answer by a reward instead of by their probability: the first is the best of n.

    Args:
        signature: of the reward; a file of questions names it, and is not continued with another one.
        scores: the reward of question i about example i, NaN where it failed.
        reset: called before each batch, so that what the reward has cached of earlier batches cannot change a score.
        sign: 1 if higher rewards are better, -1 if lower ones are.
        needs_references: whether the reward compares with the human question of the example.
        strict: whether a reward that fails is an error (`scst.on_bad_reward=stop`).
    """

    signature: str
    scores: Callable[[Sequence[QAExample], Sequence[str]], Sequence[float]]
    reset: Callable[[], None] = lambda: None
    sign: int = 1
    needs_references: bool = False
    strict: bool = False

    @property
    def name(self) -> str:
        return self.signature.partition("|")[0]

    def ranked(self, examples: Sequence[QAExample], groups: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """The candidates of each example with their rewards, best first; those without a reward come last."""
        if self.needs_references and (missing := [example.id for example in examples if not example.question]):
            raise InputError(
                f"reward {self.signature}: compares with human questions, and example {missing[0]} has none; choose a "
                "reward without references"
            )
        self.reset()
        pairs = [(example, item) for example, group in zip(examples, groups, strict=True) for item in group]
        values = self.scores([example for example, _ in pairs], [item.question for _, item in pairs])
        for (example, item), value in zip(pairs, values, strict=True):
            if self.strict and not math.isfinite(value):
                raise InputError(
                    f"example {example.id}: no reward for {item.question!r}; correct the reward, or skip such "
                    "questions with scst.on_bad_reward=skip"
                )
        rewards = iter(_rounded(value) if math.isfinite(value) else None for value in values)
        return [self._ordered(group, [next(rewards) for _ in group]) for group in groups]

    def _ordered(self, group: Sequence[Candidate], rewards: Sequence[float | None]) -> list[Candidate]:
        known = [reward for reward in rewards if reward is not None]
        mean = _rounded(sum(known) / len(known)) if known else None
        scored = [replace(item, reward=one, reward_mean=mean) for item, one in zip(group, rewards, strict=True)]
        return sorted(scored, key=lambda item: math.inf if item.reward is None else -self.sign * item.reward)


def _rounded(reward: float) -> float:
    """To significant digits: rewards have any unit, so decimals would erase the order of small ones."""
    return float(f"{reward:.{DIGITS}g}")


def generate(
    model_path: str,
    examples: Examples,
    output: Path,
    *,
    settings: GenerateSettings,
    seed: int,
    state: PartialState,
    sources: Mapping[str, str] = NO_SOURCES,
    accept_changed_data: bool = False,
    reranker: Reranker | None = None,
    language: str | None = None,
    format: str | None = None,
    part: DataPart | None = None,
    generator: CandidateGenerator | None = None,
    known_as: str | None = None,
) -> int:
    """Write `settings.num_beams` (or `num_samples`) candidates for each example, or the best `settings.keep` of them,
    to `output`, and return the number of its lines. Every process calls this.

    `model_path` is a folder or Hub name, the `seed` that of samples. `sources` has the SHA-256 of the files that the
    examples come from; with `accept_changed_data` `output` is continued although one has changed. A `reranker` orders
    the candidates, each of which then has its `reward` in the file; None: their probability does. `language` and
    `format` are as for `CandidateGenerator`. Of a `part` the file is `part.path(output)`. A `generator` of
    this name is taken as it is; None: it is loaded when there is something to do. The note names the model as it is
    `known_as`; None: by its path.
    """
    for name in ("num_beams",) if settings.do_sample else ("num_samples", "top_p", "temperature"):
        for given in settings.changed(name) if state.is_main_process else ():
            log.warning("generate.%s has no effect with do_sample=%s", given, str(settings.do_sample).lower())
    examples = ByLength(examples)
    output = part.path(output) if part else output
    count = settings.candidates
    written = count if settings.keep is None else settings.keep
    lines = ResumableLines(output, note_path(output), content="questions")
    work: Work[Any] = Work[QAExample](
        lines,
        settings.batch_size,
        title="generate",
        unit="answer",
        is_about=lambda example, rank, line: begins_with(line, json_line(_source_fields(example, rank))[:-2]),
        lines_per_row=written,
        row_name="example",
    )
    rows = StageRows[Any](part, "generate", examples, attrgetter("context"), work)

    def begin() -> Position | None:
        made_by = _made_by(model_path, settings, seed, reranker, language) | {"format": format}
        other_sources = lines.check(made_by, sources=sources, accept=accept_changed_data)
        digest = hashlib.sha256()
        for example in examples:
            digest.update(f"{example.id}\0{example.context}\0{example.answers[0]}\0{example.language}".encode())
        data = digest.hexdigest()
        if not other_sources:
            lines.check({"data": data})
        position = rows.position(other_sources)
        noted = {name: value for name, value in made_by.items() if value is not None}
        record, name = Path(model_path).parent / TRAINED, Path(model_path).name
        trained = read_record(record) if record.exists() else {}
        reward = trained.get("reward") if trained.get("model") == name else None  # that the model was trained with
        about = {"reward": reward, "data": data, "sources": dict(sources)}
        lines.write_note({"model_path": known_as or model_path, **noted, **about, **rows.note})
        return position

    def end() -> int:
        if position is not None:
            rows.finish()
        if part:
            return int(lines.read_note()["whole"]["lines"])
        _check_result(lines)
        return len(examples) * written

    position = from_main(state, begin)
    if position is None or position.rows == len(rows):
        log.info("generate: all %d %ss are in %s already", len(rows), rows.work.unit, output)
        return from_main(state, end)
    if generator is None:
        dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
        load = partial(CandidateGenerator, model_path, device=state.device, dtype=dtype)
        generator = load(engine=settings.engine, language=language, format=format)
        if not settings.do_sample and count > (size := generator.model.get_output_embeddings().weight.shape[0]):
            raise InputError(
                f"generate.num_beams={count} is above the {size} tokens that {model_path} knows: lower it"
            )
    candidates = generator.candidates
    remedy = "ask for fewer candidates (num_beams, num_samples) or shorter ones (max_new_tokens)"
    in_parts = OutOfMemoryRetry("generate", remedy)

    def decode(batch: Sequence[QAExample]) -> list[list[bytes]]:
        groups = candidates(
            batch,
            count,
            max_new_tokens=settings.max_new_tokens,
            top_p=settings.top_p if settings.do_sample else None,
            temperature=settings.temperature,
            seed=seed,
        )
        if reranker is not None:
            groups = reranker.ranked(batch, groups)
        return [
            [
                json_line(_source_fields(example, rank) | _candidate_fields(item, reranker is not None, settings.keep))
                for rank, item in enumerate(group[: settings.keep])
            ]
            for example, group in zip(batch, groups, strict=True)
        ]

    def lines_of(batch: Sequence[QAExample]) -> list[list[bytes]]:
        return [*chain.from_iterable(in_parts(decode, batch))]

    rows.write(lines_of, position, state)
    return from_main(state, end)


def merge_questions(parts: Parts, output: Path) -> None:
    """Write the questions of all parts, and the note, as one run does."""
    lines = ResumableLines(output, note_path(output), content="questions")
    lines.check(parts.note)
    parts.write(lines)
    _check_result(lines)


class ByLength:
    """Examples by the length of their passages in characters, the longest first (so that memory runs out in the first
    batch or not at all), in each window of `WINDOW`. Examples of one passage keep their order.
    """

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __len__(self) -> int:
        return len(self._examples)

    def __iter__(self) -> Iterator[QAExample]:
        rest = iter(self._examples)
        while window := deque(sorted(islice(rest, WINDOW), key=lambda example: len(example.context), reverse=True)):
            while window:
                yield window.popleft()


def _candidate_fields(item: Candidate, has_reward: bool, keep: int | None) -> dict[str, Any]:
    known = round(item.logprob, 6) if math.isfinite(item.logprob) else None
    fields: dict[str, Any] = {"question": item.question, "logprob": known}
    if has_reward:
        fields["reward"] = item.reward
        if keep is not None:  # where candidates are left out of the file, the mean over all shows what was gained
            fields["reward_mean"] = item.reward_mean
    return fields


def _source_fields(example: QAExample, rank: int) -> dict[str, Any]:
    return {
        "id": example.id,
        "candidate": rank,
        "title": example.title,
        "context": example.context,
        "answer": example.answers[0].text,
        "answer_start": example.answers[0].start,
        **({"language": example.language} if example.language else {}),
    }


def _made_by(
    model_path: str, settings: GenerateSettings, seed: int, reranker: Reranker | None, language: str | None
) -> dict[str, Any]:
    """What the lines depend on. The note of a file has those keys that are not None."""
    # Keys that older versions do not have are noted only if they differ from the default: old notes stay valid.
    later = {
        "engine": None if settings.engine == "own" else settings.engine,
        "rerank": None if reranker is None else reranker.signature,
        "keep": settings.keep,
        "max_answers": settings.max_answers,
        "language": language,
    }
    chosen = {name: value for name, value in vars(settings).items() if name not in ("output", *later)}
    return {"model": weights_hash(model_path), "seed": seed, "order": f"longest of {WINDOW} first", **chosen, **later}


def _check_result(lines: ResumableLines) -> None:
    note, questions, failed, count = lines.read_note(), 0, 0, 0
    for _, _, row in stored_rows(lines.output) if lines.begun else ():
        count += 1
        questions += bool(row["question"].strip())
        failed += "rerank" in note and row["reward"] is None
    if count and not questions:
        raise InputError(
            f"{lines.output}: all questions are empty: the model {note['model_path']} ends before its first word; "
            "train it first (rl-qg train), or sample with do_sample=true"
        )
    if "rerank" not in note:
        return
    if failed and failed == count:
        raise InputError(f"{lines.output}: the reward failed on every question; correct the reward")
    if failed:
        log.warning("generate: %d candidates in %s have no reward; they come last", failed, lines.output)
    lines.write_note({**note, "rewards_failed": failed})
