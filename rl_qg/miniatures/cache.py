"""Miniatures: small models pretrained on the training passages, so that every command runs without a hub.

A miniature is the real architecture at 0.7 to 1.4 M parameters (`rl_qg.miniatures.recipes`): the same code loads it
and computes the same metrics; only the sizes differ. The miniatures of the embedded corpus are part of the package;
others are trained on demand and cached.
"""

import hashlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.prompts import Prompt, add_highlight
from rl_qg.miniatures.recipes import FORMAT, RECIPES, PretrainingPassage
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.runtime.processes import available_cores, worker_pool
from rl_qg.settings import MiniatureSettings

PREFIX = "miniature:"
QUESTIONS = "miniature:questions"  # part of the package: a generator (`rl_qg.miniatures.cache`)
READER = "miniature:reader"  # part of the package: a reader of the embedded corpus, taught by other passages
SHIPPED = Path(__file__).parent / "pretrained"  # the miniatures of the embedded corpus, in half precision
REPEATABLE = 1  # of cached ones: increase it when the same key would give other bytes, but what is shipped stays
log = logging.getLogger(__name__)


def is_miniature(path: str) -> bool:
    return path.startswith(PREFIX)


def ensure_miniatures(
    paths: Sequence[str], passages: Sequence[PretrainingPassage], settings: MiniatureSettings
) -> dict[str, Path]:
    """The folder of each miniature in `paths`. Those that are not cached are pretrained on `passages`, one per core;
    the bytes are the same in every process, and whatever else is cached.

    The cache key is a hash of the text, the settings and the recipe's version. A model appears in the cache only when
    it is complete.
    """
    for path in paths:
        if path.removeprefix(PREFIX) not in RECIPES:
            known = ", ".join(PREFIX + name for name in RECIPES)
            raise InputError(f"model path {path}: no such miniature; choose one of {known}")
    kinds = sorted({path.removeprefix(PREFIX) for path in paths}, key=list(RECIPES).index)
    if not passages:
        raise InputError(f"model path {paths[0]}: no training passages to pretrain a miniature on; check data.train")
    text = text_hash(passages)
    folders = {kind: _folder(kind, text, settings) for kind in kinds}
    missing = [kind for kind in kinds if not folders[kind].exists()]
    if missing:
        log.info("pretraining %s on %d passages, kept in %s", ", ".join(missing), len(passages), settings.cache_dir)
        workers = min(len(missing), available_cores()) if not torch.cuda.is_available() else 1
        with worker_pool(workers, threads=1) as pool:  # more would add numbers in another order
            jobs = [
                pool.submit(pretrain, kind, passages, settings, folders[kind], row) for row, kind in enumerate(missing)
            ]
            for job in jobs:
                job.result()
    return {PREFIX + kind: folder for kind, folder in folders.items()}


def _folder(kind: str, text: str, settings: MiniatureSettings) -> Path:
    if is_shipped(kind, text, settings):
        return SHIPPED / kind
    key = {"format": FORMAT, "repeatable": REPEATABLE, "kind": kind, **asdict(settings), "text": text}
    del key["cache_dir"]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return Path(settings.cache_dir).expanduser() / f"{kind}-{digest}"


def is_shipped(kind: str, text: str, settings: MiniatureSettings) -> bool:
    """Whether the package has this miniature: same recipe, `text_hash` and sizes; trained for more steps."""
    manifest = json.loads((SHIPPED / "manifest.json").read_text())
    return kind in manifest["steps"] and manifest["key"] == shipping_key(text, settings)


def shipping_key(text: str, settings: MiniatureSettings) -> dict[str, object]:
    """What must be equal for a shipped miniature to be used, besides its kind."""
    sizes = {name: getattr(settings, name) for name in ("hidden_size", "layers", "vocab_size", "max_tokens")}
    return {"format": FORMAT, "text": text, **sizes}


def text_hash(passages: Sequence[PretrainingPassage]) -> str:
    return hashlib.sha256(json.dumps([asdict(passage) for passage in passages], sort_keys=True).encode()).hexdigest()


def pretrain(
    kind: str, passages: Sequence[PretrainingPassage], settings: MiniatureSettings, folder: Path, row: int = 0
) -> None:
    """Train tokenizer and model of one kind from random weights into `folder`; `row` is the progress bar's line."""
    from transformers import TrainingArguments  # late: a second to load, and most miniatures are only read

    from rl_qg.runtime.trainer_base import Resumable, show_progress

    recipe = RECIPES[kind]
    torch.manual_seed(0)
    texts = (text for passage in passages for text in (passage.context, *passage.questions))
    tokenizer = recipe.tokenizer(texts, settings)
    model = recipe.model(tokenizer, settings)
    steps = settings.steps if recipe.generates else settings.metric_steps
    trainer = Resumable(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.gettempdir(),  # required, but nothing is written: no checkpoints are saved
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
    with once_complete(folder) as partial:
        tokenizer.save_pretrained(partial)
        model.eval().save_pretrained(partial)


@contextmanager
def once_complete(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into, which takes its place at the end of the block."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        yield (complete := Path(temporary) / "complete")
        try:
            complete.rename(folder)
        except OSError:
            if not folder.exists():  # else another command has made the same model meanwhile
                raise


# `miniature:questions`: a generator of the embedded corpus that comes with the package, trained for `multitask`.
# The package holds what it differs in from the packaged `bart`, each matrix of the difference by its largest singular
# values: a sixth of the size of a whole model. `generator_folder` adds them up when the model is first used, and keeps
# the result beside the other miniatures. `experiments/quickstart/build_generator.py` trains it.
BASE = SHIPPED / "bart"
DIFFERENCE = SHIPPED / "questions" / "difference.safetensors"
PROMPT = Prompt(task="multitask")
LEFT, RIGHT, ROWS = ".left", ".right", ".rows"


def generator_folder(path: str, cache_dir: str | None = None) -> str:
    """The folder of `miniature:questions`, which is made when it is first asked for; another path of a generator as it
    is. `cache_dir` is where miniatures are kept; None: the default of `miniature.cache_dir`.
    """
    if path != QUESTIONS:
        return path
    key = file_hash(DIFFERENCE)[:8] + file_hash(BASE / "model.safetensors")[:8]
    return unpacked(QUESTIONS, f"questions-{key}", _write, cache_dir)


def unpacked(model: str, folder: str, write: Callable[[Path], None], cache_dir: str | None = None) -> str:
    """The folder of a packaged model in the cache, which `write` fills when it is first asked for."""
    place = Path(cache_dir or MiniatureSettings().cache_dir).expanduser() / folder
    try:
        if not place.exists():
            with once_complete(place) as partial:
                write(partial)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{model}: {place.parent} cannot be written ({reason}); set HOME to a folder that can be, or give "
            "another model"
        ) from None
    return str(place)


def _write(folder: Path) -> None:
    model, tokenizer = load_seq2seq(str(BASE))
    add_highlight(tokenizer, model, PROMPT.task)
    add_difference(model, load_file(DIFFERENCE))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    PROMPT.save(folder)


@torch.no_grad()
def add_difference(model: PreTrainedModel, parts: Mapping[str, Tensor]) -> None:
    """Add a difference, as `experiments/quickstart/build_generator.py` computes it, to the weights of its base, whose
    embeddings have the additional rows already.
    """
    for name, weight in model.named_parameters():
        if name + LEFT in parts:
            change = parts[name + LEFT].float() @ parts[name + RIGHT].float()
            weight[: len(change)] += change
        if name in parts:
            weight[: len(parts[name])] += parts[name].float()
        if name + ROWS in parts:
            weight[-len(parts[name + ROWS]) :] = parts[name + ROWS].float()
