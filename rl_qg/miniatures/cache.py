"""Miniatures: small models pretrained on the text at hand, so that every command runs without a hub.

A miniature is the real architecture at 1-2 M parameters (`rl_qg.miniatures.recipes`): the same code loads it and the
same metrics are computed, only the sizes differ. Those of the embedded corpus come with the package; others are
trained on demand and cached.
"""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments
from transformers.utils.logging import disable_progress_bar

from rl_qg.miniatures.recipes import FORMAT, RECIPES, Passage
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.progress import show_progress
from rl_qg.settings import MiniatureSettings

PREFIX = "miniature:"
SHIPPED = Path(__file__).parent / "pretrained"  # the embedded corpus's, in half precision
LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)
log = logging.getLogger(__name__)


def is_miniature(path: str) -> bool:
    """Whether a model path asks for a miniature, such as `miniature:bart`."""
    return path.startswith(PREFIX)


def ensure(paths: Sequence[str], passages: Sequence[Passage], settings: MiniatureSettings) -> dict[str, Path]:
    """The folder of each miniature that `paths` name; those that the cache lacks are pretrained on `passages`, one a
    core.

    The cache key is a hash of the text, the settings and the recipe's version; a model appears in the cache only when
    it is whole.

    Raises:
        InputError: unknown kind, or no text to learn from.
    """
    _refuse_unknown(paths)
    kinds = sorted({path.removeprefix(PREFIX) for path in paths}, key=list(RECIPES).index)
    if not passages:
        raise InputError(f"model path {paths[0]}: no training passages to pretrain a miniature on; check data.train")
    folders = {kind: _folder(kind, passages, settings) for kind in kinds}
    missing = [kind for kind in kinds if not folders[kind].exists()]
    if missing:
        log.info("pretraining %s on %d passages, kept in %s", ", ".join(missing), len(passages), settings.cache_dir)
        workers = max(1, min(len(missing), os.cpu_count() or 1)) if not torch.cuda.is_available() else 1
        threads = max(1, (os.cpu_count() or 1) // workers)
        with ProcessPoolExecutor(workers, get_context("spawn"), _be_one_process, (threads,)) as pool:
            jobs = [
                pool.submit(pretrain, kind, passages, settings, folders[kind], row) for row, kind in enumerate(missing)
            ]
            for job in jobs:
                job.result()
    return {PREFIX + kind: folder for kind, folder in folders.items()}


def _refuse_unknown(paths: Sequence[str]) -> None:
    for path in paths:
        if path.removeprefix(PREFIX) not in RECIPES:
            known = ", ".join(PREFIX + name for name in RECIPES)
            raise InputError(f"model path {path}: no such miniature; choose one of {known}")


def _folder(kind: str, passages: Sequence[Passage], settings: MiniatureSettings) -> Path:
    if is_shipped(kind, passages, settings):
        return SHIPPED / kind
    key = {"format": FORMAT, "kind": kind, **asdict(settings), "text": text_hash(passages)}
    del key["cache_dir"]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return Path(settings.cache_dir).expanduser() / f"{kind}-{digest}"


def is_shipped(kind: str, passages: Sequence[Passage], settings: MiniatureSettings) -> bool:
    """Whether the package holds this miniature: same recipe, same text and same sizes (it was trained for longer)."""
    manifest = json.loads((SHIPPED / "manifest.json").read_text())
    return kind in manifest["steps"] and manifest["key"] == shipping_key(passages, settings)


def shipping_key(passages: Sequence[Passage], settings: MiniatureSettings) -> dict[str, object]:
    """What a shipped miniature must agree with, besides its kind."""
    sizes = {name: getattr(settings, name) for name in ("hidden_size", "layers", "vocab_size", "max_tokens")}
    return {"format": FORMAT, "text": text_hash(passages), **sizes}


def text_hash(passages: Sequence[Passage]) -> str:
    """SHA-256 of the pretraining text."""
    text = json.dumps([asdict(passage) for passage in passages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _be_one_process(threads: int) -> None:
    """A pretraining worker is a process of its own, not a rank of the launcher that started its parent."""
    for name in [*os.environ]:
        if name in LAUNCHER_VARIABLES or name.startswith(("ACCELERATE_", "TORCHELASTIC_")):
            del os.environ[name]
    torch.set_num_threads(threads)


def pretrain(kind: str, passages: Sequence[Passage], settings: MiniatureSettings, folder: Path, row: int = 0) -> None:
    """Train tokenizer and model of one kind from random weights into `folder`; `row` is the bar's screen line."""
    recipe = RECIPES[kind]
    logging.getLogger("transformers").setLevel(logging.ERROR)
    disable_progress_bar()
    torch.manual_seed(0)
    tokenizer = recipe.tokenizer(_texts(passages), settings)
    model = recipe.model(tokenizer, settings)
    steps = settings.steps if recipe.generates else settings.metric_steps
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.gettempdir(),  # nothing is written there: the trainer saves no checkpoint
            max_steps=steps,
            per_device_train_batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            warmup_steps=steps // 10,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            remove_unused_columns=False,
            disable_tqdm=True,
            seed=0,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=list(passages),
        data_collator=recipe.objective(tokenizer, settings.max_tokens),
    )
    show_progress(trainer, f"pretrain {kind}", position=row)
    trainer.train()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        whole = Path(work) / kind
        tokenizer.save_pretrained(whole)
        model.eval().save_pretrained(whole)
        whole.rename(folder)


def _texts(passages: Sequence[Passage]) -> Iterator[str]:
    for passage in passages:
        yield passage.context
        yield from passage.questions
