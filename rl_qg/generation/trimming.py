"""Vocabulary trimming: a model and its tokenizer without the pieces that a corpus does not use.

Most weights of a multilingual model are embeddings (85 % of mT5-small), and one language uses few of them. Source:
Ushio et al. 2023, "An Efficient Multilingual Language Model Compression through Vocabulary Trimming". Kept rows are
copied, so the logits of kept pieces stay the same; their probabilities rise, since there are fewer pieces.

Texts in which only kept pieces occur are written with the same pieces as before. In a unigram model the best division
of a text stays the best when others are no longer possible, as long as an unknown character costs the same, so the
piece of the lowest score, which sets that cost, is kept. In byte pairs the merges of kept pieces are kept.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from rl_qg.runtime.errors import InputError

UNIGRAM, PAIRS = "Unigram", "BPE"
KINDS = (UNIGRAM, PAIRS, "WordPiece", "WordLevel")
Json = dict[str, Any]


def pieces_of(tokenizer: Json) -> dict[str, int]:
    """The pieces of a parsed `tokenizer.json` with their ids, without added tokens.

    Raises:
        InputError: it is of another kind than `KINDS`.
    """
    model = tokenizer["model"]
    if model.get("type") not in KINDS:
        raise InputError(f"its tokenizer is of the kind {model.get('type')}; trim knows {', '.join(KINDS)}")
    if model["type"] == UNIGRAM:
        return {piece: number for number, (piece, _) in enumerate(model["vocab"])}
    return dict(model["vocab"])


def kept_ids(
    tokenizer: Json,
    counts: Mapping[int, int],
    *,
    limit: int | None = None,
    common: int = 0,
    always: Iterable[int] = (),
) -> list[int]:
    """The ids that stay, in their order.

    Args:
        tokenizer: a parsed `tokenizer.json`.
        counts: how often each id occurs in the corpus.
        limit: of the pieces that occur the most frequent so many; None: all.
        common: of the whole vocabulary the first so many: by score in a unigram model, else by id.
        always: ids that stay, such as those in the model's config.

    Added tokens (`<hl>`, language codes) stay too, and what kept texts need besides: the single characters of kept
    pieces, so that their words can be written in parts, and the parts of merged pieces.
    """
    model, pieces = tokenizer["model"], pieces_of(tokenizer)
    frequent = sorted(counts, key=lambda number: (-counts[number], number))
    kept = {*frequent[:limit], *always, *(token["id"] for token in tokenizer["added_tokens"])}
    kept |= {pieces[token] for token in (model.get("unk_token"),) if token in pieces}
    if model["type"] == UNIGRAM:
        scores = [score for _, score in model["vocab"]]
        by_score = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
        kept |= {model["unk_id"], by_score[-1], *by_score[:common]}
    else:
        kept |= {*sorted(pieces.values())[:common]}
    used = {character for piece, number in pieces.items() if number in kept for character in piece}
    if "ByteLevel" in str(tokenizer["pre_tokenizer"]):  # characters stand for bytes, with which all can be written
        used |= pieces.keys()
    kept |= {number for piece, number in pieces.items() if len(piece) == 1 and piece in used}
    if model["type"] == PAIRS:
        for first, second in reversed([_merge(merge) for merge in model["merges"]]):  # parts are merged before a whole
            if pieces.get(first + second) in kept:
                kept |= {pieces[first], pieces[second]}
    return sorted(kept)


def _merge(merge: Any) -> tuple[str, str]:
    """The parts of a merge, which older files hold as a text."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second


def trimmed_tokenizer(tokenizer: Json, kept: list[int]) -> Json:
    """A parsed `tokenizer.json` with the ids `kept` alone, numbered anew in their order."""
    new = {number: place for place, number in enumerate(kept)}
    model = dict(tokenizer["model"])
    if model["type"] == UNIGRAM:
        model["vocab"] = [entry for number, entry in enumerate(model["vocab"]) if number in new]
        model["unk_id"] = new[model["unk_id"]]
    else:
        model["vocab"] = {piece: new[number] for piece, number in model["vocab"].items() if number in new}
    if model["type"] == PAIRS:
        known = model["vocab"]
        model["merges"] = [
            merge for merge in model["merges"] if {*_merge(merge), "".join(_merge(merge))} <= known.keys()
        ]
    padding = tokenizer.get("padding")
    return {
        **tokenizer,
        "model": model,
        "truncation": None,  # of an earlier use
        "padding": padding and {**padding, "pad_id": new[padding["pad_id"]]},
        "added_tokens": [{**token, "id": new[token["id"]]} for token in tokenizer["added_tokens"]],
        "post_processor": _renumbered(tokenizer["post_processor"], new),
    }


def _renumbered(value: Any, new: Mapping[int, int]) -> Any:
    """A post-processor with new ids: in `ids` of templates, and in `sep` and `cls` of BERT's and RoBERTa's."""
    if isinstance(value, list):
        return [_renumbered(item, new) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, item in value.items():
        if name == "ids":
            changed[name] = [new[number] for number in item]
        elif name in ("sep", "cls"):
            changed[name] = [item[0], new[item[1]]]
        else:
            changed[name] = _renumbered(item, new)
    return changed


def ids_in_configs(model: PreTrainedModel) -> set[int]:
    """The token ids that the model's configurations name, such as that of the start token."""
    return {
        number
        for config in (model.config, model.generation_config)
        for value in _token_ids(config).values()
        for number in (value if isinstance(value, list) else [value])
    }


def trim_model(model: PreTrainedModel, kept: list[int]) -> None:
    """Leave the model the embeddings, logits and biases of the ids `kept`, and number the ids of its configurations
    anew.

    Raises:
        InputError: it is a pair of models, each with a vocabulary of its own.
    """
    if model.config.model_type == "encoder-decoder":
        raise InputError("it is a pair of models with two vocabularies; trim knows models with one")
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    rows = torch.tensor(kept, device=inputs.weight.device)
    size = len(inputs.weight)
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
        for name, value in _token_ids(config).items():
            setattr(config, name, [new[number] for number in value] if isinstance(value, list) else new[value])


def _token_ids(config: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in config.to_dict().items()
        if name.endswith("_token_id") and (type(value) is int or (isinstance(value, list) and value))
    }
