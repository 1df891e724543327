"""The QA stage: extractive readers are trained over several seeds and scored.

A generator is as good as the reader that its questions train: readers trained on augmented data are compared with
one trained on gold data alone (QRelScore paper, data augmentation for QA), see `rl_qg.readers.comparison`; others are
trained on synthetic questions alone.
"""

import dataclasses
import logging
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from accelerate import PartialState
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Sampler, Subset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_pt_utils import get_length_grouped_indices

from rewards.relevance.reading import SPAN_HEAD, span_scores
from rewards.words import split_question_mark
from rl_qg.data.examples import QAExample, examples_hash, passage_hash
from rl_qg.data.splits import take_passages
from rl_qg.data.streaming import Examples
from rl_qg.readers import reader
from rl_qg.readers.fine_tuning import FineTuning, delete_checkpoints
from rl_qg.readers.reader import HEADS, WindowCollator, Windows
from rl_qg.runtime.errors import InputError, NothingLearned, Terminated
from rl_qg.runtime.files import as_written, read_record, write_json
from rl_qg.runtime.processes import available_cores, worker_pool
from rl_qg.runtime.trainer_base import Resumable, resume_training
from rl_qg.settings import QASettings, ReaderTrials
from rl_qg.stats.intervals import PERCENT, PassageDraws, mean_interval

# --- questions without an answer, made from answerable ones, so that a reader learns to abstain
#
# An extractive reader that has only seen answerable questions answers anything: a fragment, shuffled words, the
# question of another passage. As a reward it then teaches a generator to write such fragments (measured:
# `experiments/reader-alone`). SQuAD 2.0 (Rajpurkar et al., "Know What You Don't Know", ACL 2018) taught readers to
# abstain by questions that people wrote; here rules write them from the training data.

Words = list[str]


def with_unanswerable(examples: Sequence[QAExample], share: float, seed: int) -> list[QAExample]:
    """Return the examples, and for a share of them a second one whose question was made unanswerable.

    Such an example has the same passage, no answers, and the id of the first with `-unanswerable`. Each is made by one
    of nine rules, drawn with equal probability: the question of another passage; its beginning; its words shuffled;
    one or two words left out; one to three words twice; its beginning with the end of another question; its first
    word, one of its capitalised words, or one of the others replaced by one of another question. Without the last
    ones a reader answers "When was Ada founded?" and "Which prize did Ada honoured with?" like right questions.
    A question that a rule leaves as it was gives no example; so do many questions in scripts without spaces, which
    are one word here. Names of the same passage are not exchanged: the passage may answer the new question too.
    The choices depend on the seed and on the order of the examples; `share` is a probability for each example.
    """
    if not share:
        return list(examples)
    if len({example.context for example in examples}) < 2:
        raise InputError("qa.unanswerable: questions of at least two passages are needed to make unanswerable ones")
    rng = random.Random(seed)
    added = []
    for example in examples:
        if rng.random() >= share:
            continue
        other = rng.choice(examples)
        while other.context == example.context:
            other = rng.choice(examples)
        rule = rng.choice(_RULES)
        text, mark = split_question_mark(example.question)
        words = rule(text.split(), split_question_mark(other.question)[0].split(), rng)
        if words and words != text.split():
            question = " ".join(words) + mark
            added.append(replace(example, id=f"{example.id}-unanswerable", question=question, answers=()))
    return [*examples, *added]


def _left_out(words: Words, rng: random.Random) -> Words:
    dropped = rng.sample(range(len(words)), k=min(len(words) - 1, rng.randint(1, 2))) if words else []
    return [word for position, word in enumerate(words) if position not in dropped]


def _repeated(words: Words, rng: random.Random) -> Words:
    start, length = rng.randrange(len(words) or 1), rng.randint(1, 3)
    return words[: start + length] + words[start:]


def with_other_word(words: Words, other: Words, rng: random.Random, *, capitalised: bool = False) -> Words:
    """The words of a question, one of which, the first excepted, is one of another question's: both begin with a small
    letter, or both `capitalised`; the same where there is none.
    """
    places, others = (
        [place for place, word in enumerate(each) if place and word.lstrip("\"'(“‘")[:1].isupper() == capitalised]
        for each in (words, other)
    )
    if not places or not others:
        return words
    place = rng.choice(places)
    return [*words[:place], other[rng.choice(others)], *words[place + 1 :]]


# The words of a question, those of one about another passage, and the source of randomness -> the new words.
_RULES: tuple[Callable[[Words, Words, random.Random], Words], ...] = (
    lambda words, other, rng: other,
    lambda words, other, rng: words[: rng.randint(1, max(1, len(words) - 1))],
    lambda words, other, rng: rng.sample(words, len(words)),
    lambda words, other, rng: _left_out(words, rng),
    lambda words, other, rng: _repeated(words, rng),
    lambda words, other, rng: (
        words[: rng.randint(1, max(1, len(words)))] + other[max(1, len(other) - rng.randint(1, 4)) :]
    ),
    lambda words, other, rng: [*other[:1], *words[1:]],
    lambda words, other, rng: with_other_word(words, other, rng, capitalised=True),
    with_other_word,
)


log = logging.getLogger(__name__)

SCORES = ("exact_match", "f1")
GROUP = 50  # batches
WINDOWS = "windows"  # the folder of a reader with its windows, until it is trained


class LengthGrouped(Sampler[int]):
    """An order of windows in which batches hold windows of similar length: random groups of 50 batches, each from
    the longest to the shortest. It depends on seed and epoch alone, so that a resumed run continues it.
    """

    def __init__(self, lengths: NDArray[np.int64], batch_size: int, seed: int) -> None:
        self.lengths, self.batch_size, self.seed, self.epoch = lengths.tolist(), batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: list[int] = get_length_grouped_indices(self.lengths, self.batch_size, GROUP, generator)
        return iter(order)


class QATrainer(Resumable):
    """A transformers trainer for start and end logits; trains on `Windows`.

    Loss: cross-entropy of the start and of the end position, averaged over both and over all windows of the update.
    Where the model's configuration has the `sigmoid` head (`rewards.relevance.reading.SPAN_HEAD`), each position is a
    decision of its own: binary cross-entropy, summed over the positions of a window, and averaged alike.
    """

    # The models average over their own batch, which the stock trainer takes for an average over the whole update: its
    # loss and gradients grow with accumulation and processes.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel,
        args: Any,
        *,
        processing_class: PreTrainedTokenizerBase,
        by_length: bool = False,
        **kwargs: Any,
    ) -> None:
        collator = WindowCollator(processing_class.pad_token_id)
        self.by_length = by_length
        super().__init__(model=model, args=args, data_collator=collator, processing_class=processing_class, **kwargs)
        self._is_sigmoid = getattr(model.config, SPAN_HEAD, HEADS[0]) == "sigmoid"
        self.model_accepts_loss_kwargs = True  # makes the trainer count the labels of the whole update

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if not self.by_length:
            return super()._get_train_sampler(train_dataset)
        return LengthGrouped(self.train_dataset.lengths, self.args.train_batch_size, self.args.seed)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed cross-entropy over the number of labels (two a window) of the whole update, of all processes.

        Padding takes no part: the loss of a window does not depend on what it is batched with.
        """
        labels = inputs["labels"]
        outputs = model(**_without_labels(inputs))
        padding = inputs["attention_mask"] == 0
        loss = torch.zeros((), device=labels.device)
        for logits, positions in zip((outputs.start_logits, outputs.end_logits), labels.unbind(dim=1), strict=True):
            loss = loss + self._position_loss(logits.float(), positions, padding)
        loss = loss / (labels.numel() if num_items_in_batch is None else num_items_in_batch)
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes  # undone by the mean over processes
        return (loss, outputs) if return_outputs else loss

    def _position_loss(self, logits: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """The summed loss of one end of the spans: logits and padding (batch, longest), positions (batch,)."""
        if self._is_sigmoid:
            targets = functional.one_hot(positions, logits.shape[1]).to(logits.dtype)
            weights = (~padding).to(logits.dtype)
            return functional.binary_cross_entropy_with_logits(logits, targets, weights, reduction="sum")
        return functional.cross_entropy(logits.masked_fill(padding, float("-inf")), positions, reduction="sum")

    def prediction_step(self, model: torch.nn.Module, inputs: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
        # without labels: only the logits are needed
        return super().prediction_step(model, _without_labels(inputs), *args, **kwargs)

    def predict_logits(self, windows: Windows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Start and end logits, each (W, longest), of all windows, on every process."""
        order = np.argsort(-windows.lengths, kind="stable")  # neighbours of one length need little padding
        logits: Any = self.predict(Subset(windows, order.tolist())).predictions  # type: ignore[arg-type]
        back = np.argsort(order)
        return logits[0][back], logits[1][back]


def _without_labels(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if name != "labels"}


@dataclass(frozen=True)
class _Job:
    train: Examples
    validation: Sequence[QAExample]
    settings: QASettings
    output_dir: Path
    use_cpu: bool
    precision: str

    @property
    def processes(self) -> PartialState:
        return PartialState(cpu=self.use_cpu)  # anew each time: every `TrainingArguments` resets them

    def folder(self, seed: int) -> Path:
        return self.output_dir / f"seed-{seed}"

    def unfinished(self) -> list[int]:
        """The seeds whose reader is not trained and scored; all processes must ask before one of them goes on."""
        return [seed for seed in self.settings.seeds if not (self.folder(seed) / "qa_metrics.json").exists()]

    @cached_property
    def data(self) -> dict[str, str]:
        return {"train": examples_hash(self.train), "validation": examples_hash(self.validation)}

    def inputs(self, seed: int) -> dict[str, Any]:
        """Everything that the result of a seed depends on, so that a resumed run is the same run."""
        settings = dataclasses.asdict(self.settings)
        seeds = settings.pop("seeds")
        settings.pop("equal_updates")  # is about several readers, and one of them does not depend on it
        # The first seed also keeps its model, so another order of seeds is another run.
        inputs = {**settings, "precision": self.precision, "data": self.data, "seed": seed}
        return inputs | {"keeps_model": seed == seeds[0], "processes": self.processes.num_processes}

    def check(self) -> None:
        settings = self.settings
        for name, examples in (("train", self.train), ("validation", self.validation)):
            if not len(examples):
                raise InputError(f"data.{name}: no examples for the reader; check the source and its limits")
            if unasked := next((example.id for example in examples if not example.question.strip()), None):
                raise InputError(f"data.{name}: example {unasked} has no question; the reader needs one for each")
        if len({example.id for example in self.validation}) < len(self.validation):
            raise InputError("data.validation: some ids occur twice, but predictions go by id; make them unique")
        if settings.impossible and all(example.answers for example in self.train):
            raise InputError("qa.impossible=true: data.train has no question without an answer to learn from")
        if not settings.seeds or len(set(settings.seeds)) < len(settings.seeds):
            raise InputError(f"qa.seeds={settings.seeds}: name each seed once, and at least one")
        if Path(settings.model.path).expanduser().resolve() == self.output_dir.resolve():
            raise InputError(f"{self.output_dir}: is the model to start from; write the reader to another folder")
        if self.unfinished():  # a finished reader needs its model no more; a window that is too long is refused
            reader.load_tokenizer(settings.model.path, max_length=settings.max_length)


class _Features(NamedTuple):
    tokenizer: PreTrainedTokenizerBase
    train: Windows
    validation: Windows


def train_reader(
    train: Examples, validation: Sequence[QAExample], *, settings: QASettings, output_dir: Path, **machine: Any
) -> dict[str, Any]:
    """Train one reader for each seed, score it on `validation`, and return what `qa_metrics.json` holds. `machine` are
    further arguments of `train_readers`.

    Files in `output_dir`: model and tokenizer of the first seed and its `predictions.json` (id to text);
    `question_scores.json` (id to exact match and F1, fractions and means over the seeds, and the hash of the passage);
    `qa_metrics.json` (percent, means over the seeds, with 95 % bootstrap intervals over passages, and the number of
    updates of each seed); `seed-<k>/` with these files of each seed.

    The windows are in the folder `windows` until all is trained, mapped into the memory of all processes.

    A second call skips finished seeds and resumes an unfinished one from its last checkpoint. Every process calls
    this; the main one writes. Raises `InputError` for unusable examples, settings or models, and when `output_dir`
    holds readers trained with other settings, or with other data that the caller has not accepted.
    """
    train_readers({output_dir: train}, validation, settings=settings, **machine)
    return read_record(output_dir / "qa_metrics.json")


def train_readers(
    train: Mapping[Path, Examples],
    validation: Sequence[QAExample],
    *,
    settings: QASettings,
    use_cpu: bool = False,
    precision: str = "no",
    accept_changed_data: bool = False,
) -> None:
    """Train readers on several data sets, each as `train_reader` does in the folder that `train` names.

    With `settings.threads`, on a CPU and in a single process, the readers train in worker processes of so many
    threads, as many at once as the cores allow; a result does not depend on how many that are.
    """
    jobs = []
    for output_dir, examples in train.items():
        job = _Job(examples, validation, settings, output_dir, use_cpu, precision)
        job.check()
        if settings.unanswerable:
            job = replace(job, train=with_unanswerable([*examples], settings.unanswerable, settings.seeds[0]))
        jobs.append(job)
    for job in jobs:
        for seed in settings.seeds:
            with as_written(job.folder(seed) / "inputs.json"):
                _refuse_other_run(job.folder(seed), job.inputs(seed), accept_changed_data)
    for job in jobs:
        if job.processes.is_main_process:
            for seed in job.unfinished():
                write_json(job.folder(seed) / "inputs.json", job.inputs(seed))
    state = jobs[0].processes
    side_by_side = settings.threads and state.num_processes == 1 and state.device.type == "cpu"
    (_train_side_by_side if side_by_side else _train_in_turn)(jobs)
    for job in jobs:
        if job.processes.is_main_process:
            for seed in settings.seeds:
                delete_checkpoints(job.folder(seed))  # of a reader that was killed when it was done
            _summarise(job)
        if job.processes.is_local_main_process:
            shutil.rmtree(job.output_dir / WINDOWS, ignore_errors=True)
        job.processes.wait_for_everyone()


def _train_in_turn(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        if unfinished := job.unfinished():
            features = _features(job)
            for seed in unfinished:
                log.info("reader on %s data, seed %d: %d questions", job.output_dir.name, seed, len(job.train))
                _run_seed(job, seed, features)


def _train_side_by_side(jobs: Sequence[_Job]) -> None:
    unfinished = [(job, seed) for job in jobs for seed in job.unfinished()]
    if not unfinished:
        return
    threads = jobs[0].settings.threads or 1
    workers = min(len(unfinished), max(1, available_cores() // threads))
    log.info("%d readers with %d CPU threads each, %d at a time", len(unfinished), threads, workers)
    with worker_pool(workers, threads) as pool:
        running = [pool.submit(_run_in_worker, job, seed, n % workers) for n, (job, seed) in enumerate(unfinished)]
        try:
            for done in as_completed(running):
                done.result()
        except BrokenProcessPool:
            raise InputError(
                f"{jobs[0].output_dir.parent}: a process that trained a reader was killed, perhaps for lack of "
                "memory; the same command goes on, and with a larger qa.threads fewer readers train at a time"
            ) from None


_features_of: dict[Path, _Features] = {}  # of the worker's latest job: its seeds share them


def _run_in_worker(job: _Job, seed: int, row: int) -> None:
    if job.output_dir not in _features_of:
        _features_of.clear()
        _features_of[job.output_dir] = _features(job, progress=False)
    try:
        _run_seed(job, seed, _features_of[job.output_dir], row)
    except Terminated:
        os._exit(1)  # else the process would take the next reader


def _refuse_other_run(folder: Path, inputs: Mapping[str, Any], accept_changed_data: bool) -> None:
    path = folder / "inputs.json"
    if not path.exists():
        return
    # There was no choice in earlier versions.
    missing = {"head": HEADS[0], "by_length": False, "impossible": False}
    earlier = {**missing, **read_record(path)}
    differing = [key for key in inputs if earlier.get(key) != inputs[key]]
    if (folder / "qa_metrics.json").exists():
        differing = [key for key in differing if key != "processes"]  # it is complete: the number no longer matters
    if differing == ["data"]:
        before, now = earlier["data"], inputs["data"]
        role, *_ = [role for role in now if before.get(role) != now[role]]
        changed = (
            f"data.{role}: has changed since {folder} was begun (SHA-256 of its examples {before.get(role, '')[:8]}, "
            f"now {now[role][:8]})"
        )
        if not accept_changed_data:
            raise InputError(
                f"{changed}; put the old file back, choose another output_dir, delete that folder, or go on "
                "anyway with accept_changed_data=true"
            )
        log.warning("%s (accept_changed_data=true); finished seeds stay as they are", changed)
    elif differing:
        raise InputError(
            f"{folder}: holds a reader with other settings ({', '.join(differing)}): "
            "choose another output_dir, or delete that folder"
        )


def _features(job: _Job, *, progress: bool = True) -> _Features:
    settings = job.settings
    tokenizer, token_types = reader.load_tokenizer(settings.model.path, max_length=settings.max_length)
    options: dict[str, Any] = {"max_length": settings.max_length, "doc_stride": settings.doc_stride}
    options |= {"token_types": token_types}
    identity = tokenizer.backend_tokenizer.to_str()  # before it remembers the lengths that it was called with

    def windows(examples: Examples, role: str) -> Windows:
        shown = progress and job.processes.is_main_process

        def make() -> Iterator[Windows]:
            for part in reader.encode_in_parts(examples, tokenizer, progress=shown, **options):
                yield part if role == "validation" else replace(part, offsets=None)  # only answers need them

        made_of = {**options, "tokenizer": identity, "role": role, "examples": job.data[role]}
        return reader.stored_windows(job.output_dir / WINDOWS, made_of, make, job.processes)

    features = _Features(tokenizer, windows(job.train, "train"), windows(job.validation, "validation"))
    # It is saved with the reader, and remembers the lengths that it was called with: also where no window was made.
    reader.encode(job.validation[:1], tokenizer, **options)
    return features


def _run_seed(job: _Job, seed: int, features: _Features, row: int = 0) -> None:
    """Train, predict and score; `qa_metrics.json` is last: the seed is finished. `row`: the progress bar's line."""
    folder, settings = job.folder(seed), job.settings
    tuning = FineTuning(settings, folder, seed, job.use_cpu, job.precision)
    transformers.set_seed(seed)  # initialises the span head
    model = reader.load_model(settings.model.path, features.tokenizer)
    if settings.head != getattr(model.config, SPAN_HEAD, HEADS[0]):
        setattr(model.config, SPAN_HEAD, settings.head)
    if settings.unanswerable or settings.impossible:
        model.config.abstains = True  # `reward=reader` then lets it answer nothing
    arguments = tuning.arguments()  # after the model: under ZeRO-3 they would make it load in pieces
    trainer = QATrainer(
        model,
        arguments,
        processing_class=features.tokenizer,
        by_length=settings.by_length,
        train_dataset=features.train,
    )
    resume_training(trainer, f"reader on {job.output_dir.name} data, seed {seed}", position=row)
    logits = trainer.predict_logits(features.validation)
    if not all(np.isfinite(part).all() for part in logits):
        raise NothingLearned("the reader's logits are not finite; no model is saved: lower the learning rate")
    starts, ends = (span_scores(torch.from_numpy(part), trainer.model.config).numpy() for part in logits)
    if seed == settings.seeds[0]:
        trainer.save_whole(job.output_dir)
    if trainer.is_world_process_zero():
        limits: dict[str, Any] = {"n_best": settings.n_best, "max_answer_length": settings.max_answer_length}
        limits["refuses"] = settings.impossible  # by the class token's span, as it was taught
        predictions = reader.best_answers(features.validation, job.validation, starts, ends, **limits)
        scores = reader.score_predictions(predictions, job.validation)
        rows = zip(scores.ids, scores.exact_matches, scores.f1s, strict=True)
        write_json(folder / "predictions.json", predictions)
        write_json(folder / "question_scores.json", {key: {"exact_match": em, "f1": f1} for key, em, f1 in rows})
        metrics = {
            "exact_match": scores.exact_match,
            "f1": scores.f1,
            "total": len(scores.ids),
            "missing": scores.missing,
            "updates": trainer.state.global_step,
            "features": {"train": features.train.counts(), "validation": features.validation.counts()},
        }
        write_json(folder / "qa_metrics.json", metrics)
        delete_checkpoints(folder)
    trainer.accelerator.wait_for_everyone()


def _results(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """What `qa_metrics.json` of a finished seed holds, and its `question_scores.json`."""
    with as_written(folder / "qa_metrics.json"):
        metrics = read_record(folder / "qa_metrics.json")
        _ = metrics["missing"], metrics["features"], [0.0 + metrics[name] for name in SCORES]
    with as_written(folder / "question_scores.json"):
        table = read_record(folder / "question_scores.json")
        return metrics, {key: {name: 0.0 + row[name] for name in SCORES} for key, row in table.items()}


def _summarise(job: _Job) -> None:
    seeds = job.settings.seeds
    results = {seed: _results(job.folder(seed)) for seed in seeds}
    metrics, tables = {seed: of for seed, (of, _) in results.items()}, [table for _, table in results.values()]
    passages = {example.id: passage_hash(example.context) for example in job.validation}
    if any(table.keys() != tables[0].keys() for table in tables) or tables[0].keys() - passages.keys():
        raise InputError(
            f"{job.output_dir}: its finished readers were scored on other questions than data.validation has; put the "
            "old file back, or choose another output_dir"
        )
    questions: dict[str, dict[str, Any]] = {
        key: {name: float(np.mean([table[key][name] for table in tables])) for name in SCORES} for key in tables[0]
    }
    draws = PassageDraws([passages[key] for key in questions])
    intervals = {
        name: mean_interval([100 * row[name] for row in questions.values()], draws, bounds=PERCENT) for name in SCORES
    }
    for key, row in questions.items():
        row["passage"] = passages[key]
    summary = {
        **{name: float(np.mean([metrics[seed][name] for seed in seeds])) for name in SCORES},
        "total": len(questions),
        **(_by_possibility(job, questions) if job.settings.impossible else {}),
        "missing": metrics[seeds[0]]["missing"],
        "seeds": [{"seed": seed, **{name: metrics[seed][name] for name in SCORES}} for seed in seeds],
        "intervals": {
            name: None if interval.low is None else [interval.low, interval.high]
            for name, interval in intervals.items()
        },
        "resampled": "passages",
        "passages": draws.passages,
        "updates": metrics[seeds[0]].get("updates"),  # readers of earlier versions did not count them
        "model": job.settings.model.path,
        "precision": job.precision,
        "data": job.data,
        "features": metrics[seeds[0]]["features"],
    }
    write_json(job.output_dir / "predictions.json", read_record(job.folder(seeds[0]) / "predictions.json"))
    write_json(job.output_dir / "question_scores.json", questions)
    write_json(job.output_dir / "qa_metrics.json", summary)


def _by_possibility(job: _Job, questions: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Of questions with an answer and of those without one, which SQuAD 2.0 calls HasAns and NoAns."""
    found: dict[str, Any] = {}
    for name, wanted in (("answerable", True), ("impossible", False)):
        if rows := [questions[example.id] for example in job.validation if bool(example.answers) is wanted]:
            found[name] = {"total": len(rows), **{one: 100 * fmean(row[one] for row in rows) for one in SCORES}}
    return found


# --- readers trained on synthetic questions alone: with given options, or with the best of random trials
#
# Sources: Ushio, Alva-Manchego, Camacho-Collados, "Generative Language Models for Paragraph-Level Question Generation"
# (EMNLP 2022), appendix C, and "An Empirical Comparison of LM-based Question and Answer Generation Methods" (ACL
# Findings 2023), whose released code (lmqg) draws the trials.


@dataclass(frozen=True)
class TrainedReader:
    """What readers of several seeds, trained on one file, answered: exact match and F1 in percent, (seeds, questions).

    `trials` has the options of each trial with its scores on synthetic questions; `chosen` those that were used.
    """

    scores: Mapping[str, NDArray[np.float64]]
    questions: int
    chosen: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]]


def draw_trials(settings: ReaderTrials) -> list[dict[str, Any]]:
    """The options of each trial, the same for every file: learning rates even on a log scale, all independent."""
    rng = random.Random(settings.seed)
    low, high = math.log(settings.lowest_rate), math.log(settings.highest_rate)
    return [
        {
            "learning_rate": math.exp(rng.uniform(low, high)),
            "epochs": rng.choice(settings.epochs),
            "batch_size": rng.choice(settings.batch_sizes),
        }
        for _ in range(settings.count)
    ]


def train_on_synthetic(
    name: str,
    synthetic: Sequence[QAExample],
    gold: Sequence[QAExample],
    *,
    settings: QASettings,
    trials: ReaderTrials,
    folder: Path,
    keep_weights: bool = False,
    **machine: Any,
) -> TrainedReader:
    """Train readers on `synthetic`, one for each of `settings.seeds`, and score them on `gold`.

    With `trials.count` the learning rate, the number of epochs and the batch size are those of the trial whose reader,
    trained on a part of the questions, has the highest sum of exact match and F1 on those of other passages (of equal
    ones the first). Human questions decide nothing. A second call goes on where the first one ended. `machine` are
    further arguments of `train_readers`.
    """
    rows: list[dict[str, Any]] = []
    chosen = settings
    if drawn := draw_trials(trials):
        train, validation = trial_questions(name, synthetic, trials)
        for number, trial in enumerate(drawn):
            log.info("%s: trial %d of %d: %s", name, number + 1, len(drawn), _text_of(trial))
            options = replace(settings, **trial, seeds=settings.seeds[:1], max_steps=-1)
            place = folder / "trials" / str(number)
            metrics = train_reader(train, validation, settings=options, output_dir=place, **machine)
            _delete_weights(place)
            rows.append({"trial": number, **trial, **{score: metrics[score] for score in SCORES}})
        best = max(rows, key=lambda row: (row["exact_match"] + row["f1"], -row["trial"]))
        chosen = replace(settings, **drawn[best["trial"]], max_steps=-1)
        log.info("%s: the best trial is %d: %s", name, best["trial"] + 1, _text_of(drawn[best["trial"]]))
    log.info("%s: reader on %d questions", name, len(synthetic))
    train_reader(synthetic, gold, settings=chosen, output_dir=folder / "reader", **machine)
    if not keep_weights:
        _delete_weights(folder / "reader")
    tables = [read_record(folder / "reader" / f"seed-{seed}" / "question_scores.json") for seed in settings.seeds]
    scores = {
        score: np.array([[100.0 * table[example.id][score] for example in gold] for table in tables])
        for score in SCORES
    }
    used = {key: getattr(chosen, key) for key in ("learning_rate", "epochs", "batch_size", "max_steps")}
    return TrainedReader(scores, len(synthetic), used, rows)


def trial_questions(
    name: str, synthetic: Sequence[QAExample], trials: ReaderTrials
) -> tuple[list[QAExample], list[QAExample]]:
    key, seed = "qa_evaluate.trials", trials.seed
    validation = take_passages(synthetic, trials.validation, seed, f"{key}.validation", "questions judge the trials")
    asked = {passage_hash(example.context) for example in validation}
    rest = [example for example in synthetic if passage_hash(example.context) not in asked]
    if not rest:
        raise InputError(
            f"{name}: the {len(synthetic)} questions are about too few passages to set {trials.validation} questions "
            "of other passages aside for the trials; give more questions, a smaller trials.validation, or "
            "trials.count=0"
        )
    return take_passages(rest, trials.train, seed, f"{key}.train", "other questions train the trials"), validation


def _text_of(trial: Mapping[str, Any]) -> str:
    return "learning rate {learning_rate:.2e}, {epochs} epochs, batches of {batch_size}".format(**trial)


def _delete_weights(folder: Path) -> None:
    """A finished reader is not trained again without them: its scores mark it as finished."""
    for path in folder.glob("*.safetensors"):
        path.unlink(missing_ok=True)  # every process deletes them
