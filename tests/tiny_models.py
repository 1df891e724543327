"""Tiny models with random weights and their tokenizers, built in memory: no test loads anything from a hub."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BartForConditionalGeneration,
    BertLMHeadModel,
    BertModel,
    EncoderDecoderModel,
    MBart50Tokenizer,
    NllbTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    T5ForConditionalGeneration,
)

from rl_qg.generation.prefix_model import PrefixConfig, PrefixLM


def tiny(
    kind: type[PreTrainedModel],
    vocab_size: int,
    *,
    hidden: int = 16,
    layers: int = 1,
    heads: int = 2,
    positions: int = 64,
    spread: float = 0.3,
    dropout: float = 0.0,
    seed: int = 0,
    **config: Any,
) -> Any:
    """A model of class `kind` with random weights, in evaluation mode.

    Args:
        kind: The model's class, such as `BertForMaskedLM`.
        vocab_size: Number of tokens.
        hidden: Width of the states; feed-forward layers are twice as wide.
        layers: Number of layers, of encoder and decoder each.
        heads: Number of attention heads of a layer.
        positions: The longest input, where the architecture has a limit.
        spread: Standard deviation of the weights (T5: a factor). Large, so that scores differ clearly.
        dropout: Probability of every kind of dropout.
        seed: Of the weights.
        config: Further fields of the architecture's configuration.
    """
    torch.manual_seed(seed)
    names = _names(kind.config_class.model_type)
    sizes = {
        "hidden": hidden,
        "feed_forward": 2 * hidden,
        "layers": layers,
        "heads": heads,
        "head_size": hidden // heads,
        "positions": positions,
        "spread": spread,
        "dropout": dropout,
    }
    fields = {field: sizes[size] for size, those in names.items() for field in those.split()}
    return kind(kind.config_class(vocab_size=vocab_size, **(fields | config))).eval()


def _names(architecture: str) -> dict[str, str]:
    """The fields of a configuration that hold each size."""
    match architecture:
        case "bert" | "roberta" | "albert" | "electra":
            return {
                "hidden": "hidden_size",
                "feed_forward": "intermediate_size",
                "layers": "num_hidden_layers",
                "heads": "num_attention_heads",
                "positions": "max_position_embeddings",
                "spread": "initializer_range",
                "dropout": "hidden_dropout_prob attention_probs_dropout_prob",
            }
        case "llama" | "gemma2":
            return {
                "hidden": "hidden_size",
                "feed_forward": "intermediate_size",
                "layers": "num_hidden_layers",
                "heads": "num_attention_heads num_key_value_heads",
                "head_size": "head_dim",
                "positions": "max_position_embeddings",
                "spread": "initializer_range",
                "dropout": "attention_dropout",
            }
        case "distilbert":
            return {
                "hidden": "dim",
                "feed_forward": "hidden_dim",
                "layers": "n_layers",
                "heads": "n_heads",
                "positions": "max_position_embeddings",
                "spread": "initializer_range",
                "dropout": "dropout attention_dropout qa_dropout",
            }
        case "gpt2":
            return {
                "hidden": "n_embd",
                "layers": "n_layer",
                "heads": "n_head",
                "positions": "n_positions",
                "spread": "initializer_range",
                "dropout": "resid_pdrop embd_pdrop attn_pdrop",
            }
        case "t5" | "mt5" | "umt5":
            return {
                "hidden": "d_model",
                "feed_forward": "d_ff",
                "layers": "num_layers",
                "heads": "num_heads",
                "head_size": "d_kv",
                "spread": "initializer_factor",
                "dropout": "dropout_rate",
            }
        case "led":
            return _names("bart") | {"positions": "max_encoder_position_embeddings max_decoder_position_embeddings"}
        case _:  # BART and the families with its configuration
            return {
                "hidden": "d_model",
                "feed_forward": "encoder_ffn_dim decoder_ffn_dim",
                "layers": "encoder_layers decoder_layers",
                "heads": "encoder_attention_heads decoder_attention_heads",
                "positions": "max_position_embeddings",
                "spread": "init_std",
                "dropout": "dropout",
            }


def tiny_bart(vocab_size: int, **sizes: Any) -> BartForConditionalGeneration:
    """A BART for `word_tokenizer`."""
    return tiny(BartForConditionalGeneration, vocab_size, forced_eos_token_id=None, **sizes)


def tiny_t5(vocab_size: int, **sizes: Any) -> T5ForConditionalGeneration:
    """A T5 for `word_tokenizer`."""
    special = {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2}
    return tiny(T5ForConditionalGeneration, vocab_size, **{"spread": 3.0, **special, **sizes})


def tiny_pair(vocab_size: int, decoder: type[PreTrainedModel] = BertLMHeadModel, **sizes: Any) -> EncoderDecoderModel:
    """A BERT that encodes, and a model of another kind that decodes."""
    return EncoderDecoderModel(
        encoder=tiny(BertModel, vocab_size, **sizes),
        decoder=tiny(decoder, vocab_size, is_decoder=True, add_cross_attention=True, **sizes),
    ).eval()


def tiny_prefix(vocab_size: int, encoder: type[PreTrainedModel] = BertModel, **sizes: Any) -> PrefixLM:
    """A prefix model with the layers of an encoder."""
    model = tiny(encoder, vocab_size, **sizes)
    return PrefixLM(PrefixConfig(stack=model.config, initializer_range=model.config.initializer_range)).eval()


def save(folder: Path | str, tokenizer: PreTrainedTokenizerFast, model: PreTrainedModel) -> str:
    """A model folder with its tokenizer; its path."""
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


WORD_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
PIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECE_ROLES = dict(
    zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), PIECE_SPECIALS, strict=True)
)
WORD_ROLES = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), WORD_SPECIALS, strict=True))


def word_tokenizer(words: str, template: str = "<s> $A </s>") -> PreTrainedTokenizerFast:
    """Every word of `words` is a token, and white space separates them."""
    vocabulary = {token: index for index, token in enumerate([*WORD_SPECIALS, *sorted(set(words.split()))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    specials = [(token, index) for index, token in enumerate(WORD_SPECIALS) if token in template]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=specials)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **WORD_ROLES
    )


def coded_tokenizer(kind: type[PreTrainedTokenizerFast], words: str) -> Any:
    """A tokenizer with language codes, of the class of mBART-cc25, mBART-50 or NLLB; `words` are tokens, and so are
    their letters.
    """
    letters = sorted({*words, "▁"} - {" "})
    pieces = dict.fromkeys([*(f"▁{word}" for word in words.split()), *letters])
    roles = ("<s>", "<pad>", "</s>", "<unk>")
    if kind is NllbTokenizer:  # pairs of letters and no merges: words are written letter by letter
        return kind(vocab={token: number for number, token in enumerate([*roles, *letters])}, merges=[])
    first = ("<unk>", "<s>", "</s>") if kind is MBart50Tokenizer else roles  # the order in which each reads them
    return kind(vocab=[*((token, 0.0) for token in first), *((piece, -2.0) for piece in pieces)])


def piece_tokenizer(
    vocabulary: Sequence[str] = (),
    text: Sequence[str] = (),
    *,
    size: int = 150,
    pairs: bool = True,
    lowercase: bool = False,
    **options: Any,
) -> PreTrainedTokenizerFast:
    """Word pieces as BERT's: those of `vocabulary`, or `size` pieces learned from `text`.

    With `pairs`, `[CLS]` and `[SEP]` are added to one text or two.
    """
    known = {piece: index for index, piece in enumerate([*PIECE_SPECIALS, *vocabulary])} if vocabulary else None
    tokenizer = Tokenizer(models.WordPiece(known, unk_token="[UNK]"))
    if lowercase:
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    if not vocabulary:
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=[*PIECE_SPECIALS], show_progress=False)
        tokenizer.train_from_iterator(text, trainer)
    if pairs:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **PIECE_ROLES, **options)


def byte_tokenizer(
    text: Sequence[str], roles: Mapping[str, str], *, size: int = 330, **options: Any
) -> PreTrainedTokenizerFast:
    """Byte-level pairs learned from `text`, as GPT-2's; `roles` says which special token does what."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(dict.fromkeys(roles.values())),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles, **options)
