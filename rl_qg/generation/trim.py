"""Trimming: a model folder or Hub model and a corpus -> the model without the pieces that the corpus does not use.

The corpus is text (a passage a line) or QA data, of which the passage, the questions and all inputs of the generator
(`rl_qg.generation.prompts`) are counted. `output_dir` is a model folder like any other; `trim.json` in it says what
was kept.

Most weights of a multilingual model are embeddings (85 % of mT5-small), and one language uses few of them. Source:
Ushio et al. 2023, "An Efficient Multilingual Language Model Compression through Vocabulary Trimming". Kept rows are
copied, so the logits of kept pieces stay the same; their probabilities rise, since there are fewer pieces.

Texts in which only kept pieces occur are written with the same pieces as before. In a unigram model the best division
of a text stays the best when others are no longer possible, as long as an unknown character costs the same, so the
piece of the lowest score, which sets that cost, is kept. In byte pairs the merges of kept pieces are kept.
"""

import json
import logging
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample
from rl_qg.data.formats import existing_file, is_hub_name
from rl_qg.data.passages import Passages, has_answers
from rl_qg.data.reading import report_line as data_line, source_names
from rl_qg.data.streaming import ExampleStream, stream_examples
from rl_qg.generation.loading import load_generator, token_ids
from rl_qg.generation.prompts import INPUTS, Prompt, add_highlight, as_input, highlight
from rl_qg.generation.tasks import PREFIXES
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.settings import TrimSettings

UNIGRAM, PAIRS = "Unigram", "BPE"
KINDS = (UNIGRAM, PAIRS, "WordPiece", "WordLevel")
NOTE = "trim.json"
BATCH = 1000  # texts that are divided into pieces at a time
OLD_FILES = ("vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model")  # with the old vocabulary
Json = dict[str, Any]
Corpus = ExampleStream | Passages
log = logging.getLogger(__name__)


def trim(model_path: str, folder: Path, settings: TrimSettings) -> Json:
    """Write the trimmed model to `folder`, and return what `trim.json` holds."""
    if folder.exists() and not (folder / NOTE).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"output_dir={folder}: holds other files; name a new folder")
    sources = _sources(settings.corpus)
    model, tokenizer = load_generator(model_path)
    prompt = Prompt.of(model_path, model, tokenizer)
    if not tokenizer.is_fast:
        raise InputError(f"model.path={model_path}: its tokenizer has no tokenizer.json; trim needs a fast one")
    add_highlight(tokenizer, model, prompt.task, prompt.format)
    before = _size_of(model)
    corpus: list[Corpus] = [
        stream_examples(source, role="train", allow_unlabelled=True)
        if is_hub_name(source) or has_answers(source)
        else Passages([source])
        for source in sources
    ]
    counts: Counter[int] = Counter()
    texts = 0
    for batch in _batches(ProgressBar(_texts(corpus, prompt), desc="count", unit="text")):
        texts += len(batch)
        for ids in tokenizer(batch, verbose=False)["input_ids"]:
            counts.update(ids)
    for source in corpus:
        log.info("corpus: %s", _what_was_read(source))
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    try:
        always = ids_in_configs(model) | set(tokenizer.all_special_ids)
        kept = kept_ids(data, counts, limit=settings.pieces, common=settings.common, always=always)
        trim_model(model, kept)
    except InputError as error:
        raise InputError(f"model.path={model_path}: {error}") from None
    note = {"model": model_path, "corpus": sources, "texts": texts, "pieces_in_corpus": len(counts)}
    note |= {"before": before, "after": _size_of(model)}
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    model.save_pretrained(partial)
    _save_tokenizer(tokenizer, trimmed_tokenizer(data, kept), kept, partial)
    if prompt.format or Prompt.stored(model_path) is not None:
        prompt.save(partial)
    new = AutoTokenizer.from_pretrained(partial, trust_remote_code=False)
    note["texts_with_other_pieces"] = 0
    for batch in _batches(ProgressBar(_texts(corpus, prompt), desc="check", unit="text", total=texts)):
        pieces = (used(batch, verbose=False).encodings for used in (tokenizer, new))
        note["texts_with_other_pieces"] += sum(a.tokens != b.tokens for a, b in zip(*pieces, strict=True))
    write_json(partial / NOTE, note)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return note


def report_line(note: Json) -> str:
    before, after = note["before"], note["after"]
    return (
        f"{before['vocabulary']:,} pieces -> {after['vocabulary']:,}; "
        f"{before['parameters']:,} parameters -> {after['parameters']:,}; "
        f"{before['bytes'] / 1e6:,.1f} MB -> {after['bytes'] / 1e6:,.1f} MB; "
        f"{note['texts_with_other_pieces']:,} of {note['texts']:,} texts are divided into other pieces"
    )


def _sources(corpus: Any) -> list[str]:
    sources = source_names(corpus, "corpus")
    if not sources or not all(sources):
        raise InputError("corpus has no value; give texts or QA data, such as corpus=train.json")
    for source in sources:
        if not is_hub_name(source):
            existing_file(source)
    return sources


def _texts(corpus: Sequence[Corpus], prompt: Prompt) -> Iterator[str]:
    """Every text that is counted: the prefixes of inputs, and those of each passage or question."""
    yield from ["".join(PREFIXES.values()), prompt.prefix, prompt.separator]
    if known := prompt.published:
        yield from (known.before, known.question, known.pair, known.between)
    for item in (item for source in corpus for item in source):
        if not isinstance(item, QAExample):
            yield item.context
            continue
        yield item.question
        yield from (answer.text for answer in item.answers)
        for answer in dict.fromkeys(item.answers):
            yield from (prompt.prefix + highlight(as_input(replace(item, answers=(answer,)), form)) for form in INPUTS)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    rest = iter(texts)
    return iter(lambda: list(islice(rest, BATCH)), [])


def _what_was_read(source: Corpus) -> str:
    if isinstance(source, ExampleStream):
        return data_line(source.report)
    if not source.counts.kept:
        raise InputError(f"corpus={source.sources[0]}: holds no passage; give another file")
    return ", ".join(f"{name} {count:,}" for name, count in asdict(source.counts).items())


def kept_ids(
    tokenizer: Json,
    counts: Mapping[int, int],
    *,
    limit: int | None = None,
    common: int = 0,
    always: Iterable[int] = (),
) -> list[int]:
    """The ids of a parsed `tokenizer.json` that stay, in their order: of those that occur in the corpus (`counts`) the
    most frequent (`limit`; None: all), the first `common` of the whole vocabulary (by score in a unigram model, else
    by id), and `always`, such as those in the model's config.

    Added tokens (`<hl>`, language codes) stay too, and what kept texts need besides: the single characters of kept
    pieces, so that their words can be written in parts, and the parts of merged pieces.
    """
    model = tokenizer["model"]
    if model.get("type") not in KINDS:
        raise InputError(f"its tokenizer is of the kind {model.get('type')}; trim knows {', '.join(KINDS)}")
    vocabulary = model["vocab"]
    frequent = sorted(counts, key=lambda number: (-counts[number], number))
    kept = {*frequent[:limit], *always, *(token["id"] for token in tokenizer["added_tokens"])}
    if model["type"] == UNIGRAM:
        pieces = {piece: number for number, (piece, _) in enumerate(vocabulary)}
        by_score = sorted(range(len(vocabulary)), key=lambda number: (-vocabulary[number][1], number))
        kept |= {by_score[-1], *by_score[:common]} | ({model["unk_id"]} - {None})
    else:
        pieces = dict(vocabulary)
        kept |= {*sorted(pieces.values())[:common]}
    kept |= {pieces[token] for token in (model.get("unk_token"),) if token in pieces}
    used = {character for piece, number in pieces.items() if number in kept for character in piece}
    if "ByteLevel" in str(tokenizer["pre_tokenizer"]):  # characters stand for bytes, with which all can be written
        used |= pieces.keys()
    kept |= {number for piece, number in pieces.items() if len(piece) == 1 and piece in used}
    if model["type"] == PAIRS:
        for first, second in reversed([*map(_parts_of, model["merges"])]):  # parts are merged before a whole
            if pieces.get(first + second) in kept:
                kept |= {pieces[first], pieces[second]}
    return sorted(kept)


def _parts_of(merge: Any) -> tuple[str, str]:
    """The parts of a merge, which older files hold as a text."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def trimmed_tokenizer(tokenizer: Json, kept: list[int]) -> Json:
    """A parsed `tokenizer.json` with the ids `kept` alone, numbered anew in their order."""
    new = {number: place for place, number in enumerate(kept)}
    model = dict(tokenizer["model"])
    if model["type"] == UNIGRAM:
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
        model["unk_id"] = new.get(model["unk_id"])
    else:
        model["vocab"] = {piece: new[number] for piece, number in model["vocab"].items() if number in new}
    if model["type"] == PAIRS:
        parts = ((merge, _parts_of(merge)) for merge in model["merges"])
        model["merges"] = [merge for merge, both in parts if {*both, "".join(both)} <= model["vocab"].keys()]
    padding = tokenizer.get("padding")
    return {
        **tokenizer,
        "model": model,
        "truncation": None,  # of an earlier use
        "padding": padding and {**padding, "pad_id": new[padding["pad_id"]]},
        "added_tokens": [{**token, "id": new[token["id"]]} for token in tokenizer["added_tokens"]],
        "post_processor": _renumbered(tokenizer["post_processor"], new),
    }


def _renumbered(value: Any, new: Mapping[int, int], name: str = "") -> Any:
    """A post-processor with new ids: in `ids` of templates, and in `sep` and `cls` of BERT's and RoBERTa's."""
    if name == "ids":
        return [new[number] for number in value]
    if name in ("sep", "cls"):
        return [value[0], new[value[1]]]
    if isinstance(value, dict):
        return {key: _renumbered(item, new, key) for key, item in value.items()}
    return [_renumbered(item, new) for item in value] if isinstance(value, list) else value


def _save_tokenizer(tokenizer: PreTrainedTokenizerBase, data: Json, kept: list[int], folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    for name in OLD_FILES:
        (folder / name).unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if (added := config.pop("added_tokens_decoder", None)) is not None:  # of tokenizers of earlier versions, by id
        new = {str(number): str(place) for place, number in enumerate(kept)}
        config["added_tokens_decoder"] = {new[number]: token for number, token in added.items()}
    write_json(folder / "tokenizer_config.json", config)


def ids_in_configs(model: PreTrainedModel) -> set[int]:
    values = [value for config in (model.config, model.generation_config) for value in token_ids(config).values()]
    return {number for value in values for number in (value if isinstance(value, list) else [value])}


def trim_model(model: PreTrainedModel, kept: list[int]) -> None:
    """Leave the model the embeddings, logits and biases of the ids `kept`; renumber those in its configurations."""
    if model.config.model_type == "encoder-decoder":
        raise InputError("it is a pair of models with two vocabularies; trim knows models with one")
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    rows = torch.tensor(kept, device=inputs.weight.device)
    size = len(inputs.weight)
    if wrong := [number for number in kept if not 0 <= number < size]:
        raise InputError(f"its configuration names token {wrong[0]}, and it has {size}; correct config.json")
    parts = {inputs.weight, *([] if outputs is None else [outputs.weight, getattr(outputs, "bias", None)])} - {None}
    with torch.no_grad():
        # The library cuts to the first rows, so the kept ones come first.
        for part in parts:
            part[: len(kept)] = part[rows]
        if (bias := getattr(model, "final_logits_bias", None)) is not None and bias.shape[-1] == size:
            bias[:, : len(kept)] = bias[:, rows]
    model.resize_token_embeddings(len(kept), mean_resizing=False)
    new = {number: place for place, number in enumerate(kept)}
    for config in (model.config, model.generation_config):
        for name, value in token_ids(config).items():
            setattr(config, name, [new[number] for number in value] if isinstance(value, list) else new[value])


def _size_of(model: PreTrainedModel) -> dict[str, int]:
    weights = list(model.parameters())
    return {
        "vocabulary": model.get_input_embeddings().weight.shape[0],
        "parameters": sum(weight.numel() for weight in weights),
        "bytes": sum(weight.numel() * weight.element_size() for weight in weights),
    }
