"""Generation: a trained generator and passages with answers -> `questions.jsonl`.

    rl-qg generate model.path=RUN/scst data.train=train.json output=questions.jsonl num_beams=8

Every process decodes its share of each batch and the main process appends the batch in order, so the file grows in
data order whatever the number of processes. After a kill the same command cuts the file back to its last whole batch
and goes on.
"""

import hashlib
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from tqdm import tqdm

from rl_qg.errors import InputError
from rl_qg.policy import Candidate, Policy
from rl_qg.qa_data import QAExample
from rl_qg.run_folder import read_json, write_json
from rl_qg.settings import GenerateSettings

log = logging.getLogger(__name__)


def generate(
    model_path: str,
    examples: Sequence[QAExample],
    output: Path,
    *,
    settings: GenerateSettings,
    seed: int,
    state: PartialState,
) -> int:
    """Write `settings.num_beams` (or `num_samples`) candidates for each example; return the number of lines in the
    file.

    Raises:
        InputError: `output` holds questions of another model, data or setting.
    """
    count = settings.num_samples if settings.do_sample else settings.num_beams
    size = settings.batch_size * state.num_processes
    if state.is_main_process:
        _claim(output, _fingerprint(model_path, examples, settings, seed))
        done = _resume(output, examples, count, size)
    state.wait_for_everyone()
    done = gather_object([done] if state.is_main_process else [])[0]
    if done < len(examples):
        policy = Policy(model_path, device=state.device)
        batches = range(done, len(examples), size)
        with tqdm(
            total=len(examples), initial=done, desc="generate", unit="passage", disable=not state.is_main_process
        ) as bar:
            for start in batches:
                batch = examples[start : start + size]
                share = batch[state.process_index :: state.num_processes]
                torch.manual_seed(_batch_seed(seed, start, state.process_index))
                found = _candidates(policy, share, count, settings)
                rows = gather_object([(example, group) for example, group in zip(share, found, strict=True)])
                if state.is_main_process:
                    _append(output, batch, dict(zip((example.id for example, _ in rows), rows, strict=True)))
                bar.update(len(batch))
    return len(examples) * count


def _candidates(
    policy: Policy, examples: Sequence[QAExample], count: int, settings: GenerateSettings
) -> list[list[Candidate]]:
    if not examples:
        return []  # the last batch may hold fewer examples than there are processes
    return policy.candidates(
        examples,
        count,
        max_new_tokens=settings.max_new_tokens,
        top_p=settings.top_p if settings.do_sample else None,
        temperature=settings.temperature,
    )


def _append(output: Path, batch: Sequence[QAExample], rows: dict[str, tuple[QAExample, list[Candidate]]]) -> None:
    """One write for the whole batch, in data order, on disk before the next batch starts."""
    lines = []
    for example in batch:
        answer = example.answers[0]
        for rank, candidate in enumerate(rows[example.id][1]):
            record = {
                "id": example.id,
                "candidate": rank,
                "title": example.title,
                "context": example.context,
                "answer": answer.text,
                "answer_start": answer.start,
                "question": candidate.question,
                "logprob": round(candidate.logprob, 6),
            }
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    with output.open("a", encoding="utf-8") as stream:
        stream.writelines(lines)
        stream.flush()
        os.fsync(stream.fileno())


def _claim(output: Path, fingerprint: dict[str, object]) -> None:
    """Refuse a file that other settings made; otherwise note beside it what makes it."""
    note = output.with_name(output.name + ".settings.json")
    if output.exists() and output.stat().st_size:
        if not note.exists():
            raise InputError(
                f"output={output}: the file exists and was not made by this command; name another or delete it"
            )
        other = read_json(note)
        changed = [key for key, value in fingerprint.items() if other.get(key) != value]
        if changed:
            raise InputError(
                f"output={output}: holds questions made with other settings ({', '.join(changed)}); "
                "name another file or delete it"
            )
    try:
        write_json(note, fingerprint)
    except OSError as error:
        raise InputError(f"output={output}: cannot be written ({error.strerror}); name another path") from None


def _fingerprint(
    model_path: str, examples: Sequence[QAExample], settings: GenerateSettings, seed: int
) -> dict[str, object]:
    spans = hashlib.sha256()
    for example in examples:
        spans.update(f"{example.id}\0{example.context}\0{example.answers[0]}\0".encode())
    weights = Path(model_path) / "model.safetensors"
    model = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.exists() else model_path
    chosen = {name: value for name, value in vars(settings).items() if name != "output"}
    return {"model": model, "data": spans.hexdigest(), "seed": seed, **chosen}


def _resume(output: Path, examples: Sequence[QAExample], count: int, size: int) -> int:
    """Cut the file back to its last whole batch; return how many examples it then holds."""
    output.touch()
    whole, offset, lines = 0, 0, 0
    position = 0
    with output.open("rb") as stream:
        for line in stream:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                break  # torn by a kill
            if not line.endswith(b"\n") or position >= len(examples) or record.get("id") != examples[position].id:
                break
            offset += len(line)
            lines += 1
            if lines % count == 0:
                position += 1
                if position % size == 0 or position == len(examples):
                    whole, keep = position, offset
    os.truncate(output, keep if whole else 0)
    if whole:
        log.info("generate: %d of %d passages are in %s already", whole, len(examples), output)
    return whole


def _batch_seed(seed: int, start: int, rank: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}|{start}|{rank}".encode()).digest()[:8], "little") >> 1


if __name__ == "__main__":
    from rl_qg.cli import main

    main(["generate"])
