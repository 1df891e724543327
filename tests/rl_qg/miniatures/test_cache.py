"""Miniatures: every kind is built, loads like the full-size model, and is cached only when complete."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from rl_qg.data.corpus import synthetic_examples
from rl_qg.miniatures.cache import ensure_miniatures, pretrain
from rl_qg.miniatures.recipes import RECIPES, PretrainingPassage
from rl_qg.runtime.errors import InputError
from rl_qg.settings import MiniatureSettings
from tests.processes import ROOT

TINY = MiniatureSettings(
    steps=3, metric_steps=3, batch_size=4, hidden_size=16, layers=1, vocab_size=400, max_tokens=64, cache_dir=""
)
CLASSES = {
    "bart": AutoModelForSeq2SeqLM,
    "t5": AutoModelForSeq2SeqLM,
    "bert": AutoModel,
    "distilbert": AutoModelForQuestionAnswering,
    "roberta": AutoModelForMaskedLM,
    "gpt2": AutoModelForCausalLM,
}


def passages(count: int = 20) -> list[PretrainingPassage]:
    texts: dict[str, list[str]] = {}
    for item in synthetic_examples(count, seed=0):
        texts.setdefault(item.context, []).append(item.question)
    return [PretrainingPassage(context, tuple(questions)) for context, questions in texts.items()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", RECIPES)
def test_each_kind_loads_like_the_full_size_model(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / kind
    pretrain(kind, passages(), TINY, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = CLASSES[kind].from_pretrained(folder)
    assert (folder / "model.safetensors").exists()
    text = passages()[0].context
    decoded = tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True)
    assert decoded.replace(" ", "") == text.replace(" ", "")  # no unknown tokens in the training text
    inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=64)
    if kind in ("bart", "t5"):
        inputs["decoder_input_ids"] = inputs["input_ids"][:, :4]
    with torch.no_grad():
        output = model(**inputs)
    assert all(torch.isfinite(value).all() for value in output.values() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("kind", RECIPES)
def test_each_objective_marks_real_tokens_only(kind: str) -> None:
    recipe = RECIPES[kind]
    rows = passages(8)
    tokenizer = recipe.tokenizer((text for row in rows for text in (row.context, *row.questions)), TINY)
    torch.manual_seed(0)
    batch = recipe.objective(tokenizer, 64)(rows)
    labels = batch["labels"]
    assert (labels != -100).any(1).all()
    if kind in ("bert", "distilbert", "roberta"):
        chosen = labels != -100
        assert batch["attention_mask"][chosen].all()
        kept = batch["input_ids"] == labels
        assert (batch["input_ids"][chosen & ~kept] == tokenizer.mask_token_id).all()
        assert 0.05 < chosen.sum() / batch["attention_mask"].sum() < 0.4
    if kind == "gpt2":
        real = labels != -100
        assert batch["input_ids"][real].equal(labels[real])
        assert (labels[:, 0] == tokenizer.bos_token_id).all()


@pytest.mark.parametrize("kind", RECIPES)
def test_a_sentence_longer_than_the_input_is_truncated(kind: str) -> None:
    """Real text has sentences of hundreds of tokens; the embedded corpus has none."""
    rows = [PretrainingPassage("word " * 300 + "end.", ("what " * 200 + "?",)), *passages(3)]
    recipe = RECIPES[kind]
    tokenizer = recipe.tokenizer((row.context for row in rows), TINY)
    for _ in range(4):
        batch = recipe.objective(tokenizer, 32)(rows)
        assert all(tensor.shape[1] <= 32 for tensor in batch.values())


def test_a_cloze_marks_the_words_that_its_target_masks() -> None:
    rows = passages(8)
    recipe = RECIPES["bart"]
    tokenizer = recipe.tokenizer((row.context for row in rows), replace(TINY, vocab_size=3000))
    seen = 0
    for _ in range(5):
        batch = recipe.objective(tokenizer, 512)(rows)
        for source_ids, label_ids in zip(batch["input_ids"], batch["labels"], strict=True):
            source = tokenizer.decode(source_ids, skip_special_tokens=False)
            target = tokenizer.decode(label_ids[label_ids != -100], skip_special_tokens=False)
            if source.count("<hl>") == 2:
                seen += 1
                answer = source.split("<hl>")[1].strip()
                restored = target.replace("<s>", "").replace("</s>", "").replace("<mask>", answer).strip()
                assert restored in source.replace("<hl> ", "").replace(" <hl>", "")
    assert seen > 10


def test_the_cache_key_depends_on_text_and_settings_but_not_on_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = replace(TINY, cache_dir=str(tmp_path))
    built: list[Path] = []

    def pretrain(kind: str, text: object, settings: object, folder: Path, row: int = 0) -> None:
        built.append(folder)
        folder.mkdir(parents=True)

    class Inline:
        def __init__(self, *args: object) -> None: ...
        def __enter__(self) -> "Inline":
            return self

        def __exit__(self, *args: object) -> None: ...
        def submit(self, function, *args):  # type: ignore[no-untyped-def]
            function(*args)
            return type("Job", (), {"result": staticmethod(lambda: None)})

    monkeypatch.setattr("rl_qg.miniatures.cache.pretrain", pretrain)
    monkeypatch.setattr("rl_qg.runtime.processes.ProcessPoolExecutor", Inline)
    first = ensure_miniatures(["miniature:bart"], passages(3), cached)
    assert ensure_miniatures(["miniature:bart"], passages(3), cached) == first
    ensure_miniatures(["miniature:bart"], passages(4), cached)
    ensure_miniatures(["miniature:bart"], passages(3), replace(cached, steps=4))
    ensure_miniatures(["miniature:bart"], passages(3), replace(cached, cache_dir=str(tmp_path / "other")))
    assert len(built) == len(set(built)) == 4
    assert len({folder.name for folder in built}) == 3  # the folder of the cache is not part of the key


def test_unknown_kinds_and_missing_text_are_errors() -> None:
    with pytest.raises(InputError, match="miniature:gpt5: no such miniature; choose one of miniature:bart"):
        ensure_miniatures(["miniature:gpt5"], passages(2), TINY)
    with pytest.raises(InputError, match="no training passages"):
        ensure_miniatures(["miniature:bart"], [], TINY)


def test_a_model_that_another_command_has_made_meanwhile_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "bert"
    pretrain("bert", passages(), TINY, folder)
    before = (folder / "model.safetensors").read_bytes()
    pretrain("bert", passages(), replace(TINY, metric_steps=1), folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["bert"]


def pretrain_for_long(cache: str) -> None:
    settings = replace(TINY, metric_steps=1_000_000, cache_dir=cache)
    ensure_miniatures(["miniature:bert"], passages(), settings)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_command(number: signal.Signals, tmp_path: Path) -> None:
    code = f"from tests.rl_qg.miniatures.test_cache import pretrain_for_long; pretrain_for_long({str(tmp_path)!r})"
    if number == signal.SIGTERM:  # as the command line takes it
        code = f"import signal; from rl_qg.commands.cli import _terminate; signal.signal({number}, _terminate); {code}"
    command = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, cwd=ROOT)
    workers = wait_for(lambda: [pid for pid in children(command.pid) if "spawn_main" in words(pid)])
    command.send_signal(number)
    command.wait(30)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.1)
    return found


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
