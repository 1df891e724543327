"""Trimming: a model folder or Hub model and a corpus -> the model without the pieces that the corpus does not use.

    rl-qg trim model.path=google/mt5-small corpus=train.json output_dir=mt5-small-de

The corpus is text (a passage a line) or QA data, of which the passage, the questions and all inputs of the generator
(`rl_qg.generation.inputs`) are counted. `output_dir` is a model folder like any other; `trim.json` in it says what was
kept.
"""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample
from rl_qg.data.formats import existing_file, is_hub_name
from rl_qg.data.passages import Passages, has_answers
from rl_qg.data.reading import report_line as data_line
from rl_qg.data.streaming import ExampleStream, stream_examples
from rl_qg.generation.inputs import INPUTS, as_input
from rl_qg.generation.loading import load_generator
from rl_qg.generation.prompts import Prompt, add_highlight, highlight
from rl_qg.generation.tasks import PREFIXES
from rl_qg.generation.trimming import ids_in_configs, kept_ids, trim_model, trimmed_tokenizer
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json
from rl_qg.settings import TrimSettings

NOTE = "trim.json"
BATCH = 1000  # texts that are divided into pieces at a time
OLD_FILES = ("vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model")  # with the old vocabulary
Corpus = ExampleStream | Passages
log = logging.getLogger(__name__)


def trim(model_path: str, folder: Path, settings: TrimSettings) -> dict[str, Any]:
    """Write the trimmed model to `folder`, and return what `trim.json` holds.

    Raises:
        InputError: the corpus or the model cannot be read or used; `folder` holds other files.
    """
    check_folder(folder)
    sources = corpus_sources(settings.corpus)
    model, tokenizer = load_generator(model_path)
    prompt = Prompt.of(model_path, model)
    if not tokenizer.is_fast:
        raise InputError(f"model.path={model_path}: its tokenizer has no tokenizer.json; trim needs a fast one")
    add_highlight(tokenizer, model, prompt.task)
    before = size_of(model)
    corpus = [_opened(source) for source in sources]
    counts: Counter[int] = Counter()
    texts = 0
    for batch in _batches(ProgressBar(corpus_texts(corpus, prompt), desc="count", unit="text")):
        texts += len(batch)
        for ids in tokenizer(batch, verbose=False)["input_ids"]:
            counts.update(ids)
    _report_corpus(corpus)
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    try:
        always = ids_in_configs(model) | set(tokenizer.all_special_ids)
        kept = kept_ids(data, counts, limit=settings.pieces, common=settings.common, always=always)
        trim_model(model, kept)
    except InputError as error:
        raise InputError(f"model.path={model_path}: {error}") from None
    note = {
        "model": model_path,
        "corpus": sources,
        "texts": texts,
        "pieces_in_corpus": len(counts),
        "before": before,
        "after": size_of(model),
    }
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    _save_tokenizer(tokenizer, trimmed_tokenizer(data, kept), kept, partial)
    if (stored := Prompt.stored(model_path)) is not None:
        stored.save(partial)
    new = AutoTokenizer.from_pretrained(partial, trust_remote_code=False)
    note["texts_with_other_pieces"] = _changed(tokenizer, new, corpus_texts(corpus, prompt), texts)
    write_json(partial / NOTE, note)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return note


def check_folder(folder: Path) -> None:
    """Raise `InputError` where the folder holds other files than an earlier trimmed model."""
    if folder.exists() and not (folder / NOTE).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output_dir={folder}: holds other files; name a new folder")


def corpus_sources(corpus: Any) -> list[str]:
    """The sources that the setting names.

    Raises:
        InputError: there is none, or no such file.
    """
    sources = [corpus] if isinstance(corpus, str) else [str(source) for source in corpus or []]
    if not sources or not all(sources):
        raise InputError("corpus has no value; give texts or QA data, such as corpus=train.json")
    for source in sources:
        if not is_hub_name(source):
            existing_file(source)
    return sources


def _opened(source: str) -> Corpus:
    """QA data, or the passages of a file without answers."""
    if is_hub_name(source) or has_answers(source):
        return stream_examples(source, role="train", allow_unlabelled=True)
    return Passages([source])


def _report_corpus(corpus: Sequence[Corpus]) -> None:
    """Log what was read and left out of sources that have been read; raise `InputError` for one without a passage."""
    for source in corpus:
        if isinstance(source, ExampleStream):
            log.info("corpus: %s", data_line(source.report))
            continue
        if not source.counts.kept:
            raise InputError(f"corpus={source.sources[0]}: holds no passage; give another file")
        log.info("corpus: %s", ", ".join(f"{name} {count:,}" for name, count in asdict(source.counts).items()))


def corpus_texts(corpus: Sequence[Corpus], prompt: Prompt) -> Iterator[str]:
    """Every text that is counted: the prefixes of inputs, and those of each passage or question."""
    yield from ["".join(PREFIXES.values()), prompt.prefix, prompt.separator]
    for source in corpus:
        for item in source:
            if isinstance(item, QAExample):
                yield from _texts(item, prompt)
            else:
                yield item.context


def _texts(example: QAExample, prompt: Prompt) -> Iterator[str]:
    yield example.question
    yield from (answer.text for answer in example.answers)
    for answer in dict.fromkeys(example.answers):
        about = replace(example, answers=(answer,))
        yield from (prompt.prefix + highlight(as_input(about, form)) for form in INPUTS)


def size_of(model: PreTrainedModel) -> dict[str, int]:
    """Rows of the embeddings, numbers in all weights, and their bytes."""
    weights = list(model.parameters())
    return {
        "vocabulary": model.get_input_embeddings().weight.shape[0],
        "parameters": sum(weight.numel() for weight in weights),
        "bytes": sum(weight.numel() * weight.element_size() for weight in weights),
    }


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, data: dict[str, Any], kept: list[int], folder: Path) -> None:
    """The tokenizer's folder with its new vocabulary."""
    tokenizer.save_pretrained(folder)
    for name in OLD_FILES:
        (folder / name).unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if (added := config.pop("added_tokens_decoder", None)) is not None:  # of tokenizers of earlier versions, by id
        new = {str(number): str(place) for place, number in enumerate(kept)}
        config["added_tokens_decoder"] = {new[number]: token for number, token in added.items()}
    write_json(folder / "tokenizer_config.json", config)


def _changed(old: PreTrainedTokenizerBase, new: PreTrainedTokenizerBase, texts: Iterator[str], total: int) -> int:
    """How many texts the new tokenizer divides into other pieces."""
    changed = 0
    for batch in _batches(ProgressBar(texts, desc="check", unit="text", total=total)):
        before, after = (tokenizer(batch, verbose=False).encodings for tokenizer in (old, new))
        changed += sum(first.tokens != second.tokens for first, second in zip(before, after, strict=True))
    return changed


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    return iter(lambda: list(islice(rest, BATCH)), [])


def report_line(note: dict[str, Any]) -> str:
    """The sizes before and after, as one line for the log."""
    before, after = note["before"], note["after"]
    return (
        f"{before['vocabulary']:,} pieces -> {after['vocabulary']:,}; "
        f"{before['parameters']:,} parameters -> {after['parameters']:,}; "
        f"{before['bytes'] / 1e6:,.1f} MB -> {after['bytes'] / 1e6:,.1f} MB; "
        f"{note['texts_with_other_pieces']:,} of {note['texts']:,} texts are divided into other pieces"
    )
