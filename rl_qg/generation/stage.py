"""Generation: a trained generator and passages with answers -> `questions.jsonl`.

    rl-qg generate model.path=RUN/scst data.train=train.json output=questions.jsonl num_beams=8

Examples are read when they are needed, and of each `WINDOW` of them those with the longest passages come first, so
that a batch holds little padding; the file has them in this order. Memory does not grow with either. Neither beams nor
samples depend on the number of processes. After a kill the same command, with as many processes or others, cuts the
file back to its last whole batch and goes on.
"""

import hashlib
import json
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate import PartialState
from tqdm import tqdm

from rl_qg.data.examples import QAExample
from rl_qg.data.streaming import Examples
from rl_qg.generation.generator import Policy
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import check_unchanged, file_hash
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.out_of_memory import Halving
from rl_qg.runtime.parallel_writer import cannot_write, write_lines
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.settings import GenerateSettings

log = logging.getLogger(__name__)
WINDOW = 4096  # examples that are held and put in order at once
NOTHING: Mapping[str, str] = MappingProxyType({})


def generate(
    model_path: str,
    examples: Examples,
    output: Path,
    *,
    settings: GenerateSettings,
    seed: int,
    state: PartialState,
    sources: Mapping[str, str] = NOTHING,
    accept_changed_data: bool = False,
) -> int:
    """Write `settings.num_beams` (or `num_samples`) candidates for each example; return the number of lines in the
    file.

    `sources` are the SHA-256 of the files that the examples come from. A batch that does not fit into memory is
    decoded in parts.

    Raises:
        InputError: `output` holds questions of another model, data or setting; a source has changed since it was
            begun, unless `accept_changed_data`; the disk is full; one example alone does not fit into memory.
    """
    examples = ByLength(examples)
    count = settings.num_samples if settings.do_sample else settings.num_beams
    resume = partial(_resume, output, examples, count, model_path, settings, seed, sources, accept_changed_data)
    done, keep = from_main(state, resume)
    if done == len(examples):
        return done * count
    dtype = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    policy = Policy(model_path, device=state.device, dtype=dtype, rows=count * settings.batch_size)
    if not settings.do_sample and count > (size := policy.model.get_output_embeddings().weight.shape[0]):
        raise InputError(f"generate.num_beams={count} is above the {size} tokens that {model_path} knows: lower it")
    decode = partial(_lines, policy, count=count, settings=settings, seed=seed)
    halving = Halving("generate", "ask for fewer candidates (num_beams, num_samples) or shorter ones (max_new_tokens)")
    with tqdm(
        total=len(examples), initial=done, desc="generate", unit="passage", disable=not state.is_main_process
    ) as bar:
        write_lines(
            islice(examples, done, None),
            lambda batch: [line for lines in halving(decode, batch) for line in lines],
            output,
            keep=keep,
            batch_size=settings.batch_size,
            state=state,
            advance=bar.update,
        )
    return len(examples) * count


class ByLength:
    """Examples by the length of their passages in characters, the longest first, in each window of `WINDOW`.

    Those of equal length, and so those of one passage, stay in their order. A batch that does not fit into memory
    shows at once.
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


def _lines(
    policy: Policy, examples: Sequence[QAExample], *, count: int, settings: GenerateSettings, seed: int
) -> list[bytes]:
    """One line for each candidate, those of an example best first."""
    found = policy.candidates(
        examples,
        count,
        max_new_tokens=settings.max_new_tokens,
        top_p=settings.top_p if settings.do_sample else None,
        temperature=settings.temperature,
        seed=seed,
    )
    lines = []
    for example, group in zip(examples, found, strict=True):
        for rank, candidate in enumerate(group):
            record = {**_asked(example, rank), "question": candidate.question, "logprob": round(candidate.logprob, 6)}
            lines.append(f"{json.dumps(record, ensure_ascii=False)}\n".encode())
    return lines


def _asked(example: QAExample, rank: int) -> dict[str, Any]:
    """What a line says of its example."""
    return {
        "id": example.id,
        "candidate": rank,
        "title": example.title,
        "context": example.context,
        "answer": example.answers[0].text,
        "answer_start": example.answers[0].start,
    }


def _resume(
    output: Path,
    examples: Examples,
    count: int,
    model_path: str,
    settings: GenerateSettings,
    seed: int,
    sources: Mapping[str, str],
    accept_changed_data: bool,
) -> tuple[int, int]:
    """Return how many examples `output` holds in whole batches and the bytes they take; note beside it what makes it.

    Raises:
        InputError: something else made it.
    """
    note = output.with_name(output.name + ".settings.json")
    begun = output.exists() and output.stat().st_size > 0
    if begun and not note.exists():
        raise InputError(
            f"output={output}: the file exists and was not made by this command; name another or delete it"
        )
    earlier = read_json(note) if begun else {}
    chosen = {name: value for name, value in vars(settings).items() if name != "output"}
    made_by = {"model": _weights_hash(model_path), "seed": seed, "order": f"longest of {WINDOW} first", **chosen}
    changed = [key for key, value in made_by.items() if begun and earlier.get(key) != value]
    others = not changed and check_unchanged(earlier.get("sources", {}), sources, output, accept=accept_changed_data)
    standing = _standing(output, examples, count, settings.batch_size)
    if begun and not others and earlier.get("data") != standing.data:
        changed.append("data")
    if changed:
        raise InputError(
            f"output={output}: holds questions made with other settings ({', '.join(changed)}); "
            "name another file or delete it"
        )
    if standing.foreign:
        raise InputError(
            f"output={output}: line {standing.foreign} is not about the example in its place; "
            "name another file or delete it"
        )
    try:
        told = {"model_path": model_path, **made_by, "reward": _reward_of(model_path)}
        write_json(note, {**told, "data": standing.data, "sources": dict(sources)})
    except OSError as error:
        raise cannot_write(output, error) from None
    if standing.done:
        log.info("generate: %d of %d passages are in %s already", standing.done, len(examples), output)
    return standing.done, standing.size


@dataclass
class _Standing:
    """How far a file has come: whole batches of `done` examples in `size` bytes; `foreign` is its first line that is
    about another example than it should be, and `data` a hash of what the examples ask.
    """

    done: int = 0
    size: int = 0
    foreign: int = 0
    data: str = ""


def _standing(output: Path, examples: Examples, count: int, batch_size: int) -> _Standing:
    """Read the file and the examples side by side."""
    found, digest = _Standing(), hashlib.sha256()
    lines = _whole_lines(output)
    number = size = 0
    for place, example in enumerate(examples, 1):
        digest.update(f"{example.id}\0{example.context}\0{example.answers[0]}\0".encode())
        for rank in range(count):
            record, length = next(lines, ({}, 0))
            if not length:
                break
            number, size = number + 1, size + length
            asked = _asked(example, rank)
            if not found.foreign and {name: record.get(name) for name in asked} != asked:
                found.foreign = number
        if number == place * count and (place % batch_size == 0 or place == len(examples)):
            found.done, found.size = place, size
    if not found.foreign and next(lines, None):
        found.foreign = number + 1
    found.data = digest.hexdigest()
    return found


def _whole_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the record and the bytes of each line, up to the first that a kill tore."""
    if not path.exists():
        return
    with path.open("rb") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except ValueError:
                return
            if not line.endswith(b"\n"):
                return
            yield record, len(line)


def _reward_of(model_path: str) -> str | None:
    """The signature of the reward that a model of ours learned from, as its run noted it."""
    folder = Path(model_path)
    note = folder.parent / TRAINED
    trained = read_json(note) if note.exists() else {}
    reward: str | None = trained.get("reward") if trained.get("model") == folder.name else None
    return reward


def _weights_hash(model_path: str) -> str:
    """One hash of all weight files of a folder; a Hub model's name."""
    files = sorted(Path(model_path).glob("*.safetensors"))
    return hashlib.sha256("".join(map(file_hash, files)).encode()).hexdigest() if files else model_path
