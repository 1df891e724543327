"""Recipes of the miniatures: tokenizer, architecture and pretraining objective of each kind."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from rl_qg.miniatures.pretraining import Batch, PretrainingPassage, infilling_and_cloze, masked_tokens, next_tokens
from rl_qg.miniatures.train_tokenizers import (
    bert_tokenizer,
    distilbert_tokenizer,
    gpt2_tokenizer,
    roberta_tokenizer,
    t5_tokenizer,
)
from rl_qg.settings import MiniatureSettings

FORMAT = 1  # increase it when a recipe changes, so that models cached under the old one are not used
INIT_STD = 0.08  # with 0.02, the value of the full-size models, a width of 128 learns nothing in so few steps


# --- architectures


def _bart(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=len(tokenizer),
            d_model=settings.hidden_size,
            encoder_layers=settings.layers,
            decoder_layers=settings.layers,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=4 * settings.hidden_size,
            decoder_ffn_dim=4 * settings.hidden_size,
            max_position_embeddings=1024,
            dropout=0.0,
            init_std=INIT_STD,
            forced_eos_token_id=None,
        )
    )


def _t5(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=len(tokenizer),
            d_model=settings.hidden_size,
            d_kv=settings.hidden_size // 4,
            d_ff=4 * settings.hidden_size,
            num_layers=settings.layers,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
    )


def _gpt2(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_embd=settings.hidden_size,
            n_layer=settings.layers,
            n_head=4,
            n_positions=1024,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            initializer_range=INIT_STD,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )


def _bert(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    return BertForMaskedLM(BertConfig(**_encoder_sizes(tokenizer, settings), max_position_embeddings=512))


def _roberta(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    sizes = _encoder_sizes(tokenizer, settings)
    return RobertaForMaskedLM(
        RobertaConfig(**sizes, max_position_embeddings=514, pad_token_id=1, bos_token_id=0, eos_token_id=2)
    )


def _encoder_sizes(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> dict[str, int | float]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": settings.hidden_size,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": 4,
        "intermediate_size": 4 * settings.hidden_size,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": INIT_STD,
    }


def _distilbert(tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    return DistilBertForMaskedLM(
        DistilBertConfig(
            vocab_size=len(tokenizer),
            dim=settings.hidden_size,
            n_layers=settings.layers,
            n_heads=4,
            hidden_dim=4 * settings.hidden_size,
            dropout=0.0,
            attention_dropout=0.0,
            initializer_range=INIT_STD,
        )
    )


# --- recipes


@dataclass(frozen=True)
class Recipe:
    """Tokenizer, architecture and objective of one kind of miniature."""

    tokenizer: Callable[[Iterator[str], MiniatureSettings], PreTrainedTokenizerFast]
    model: Callable[[PreTrainedTokenizerFast, MiniatureSettings], PreTrainedModel]
    objective: Callable[[PreTrainedTokenizerFast, int], Callable[[list[PretrainingPassage]], Batch]]
    generates: bool = False


RECIPES = {
    "bart": Recipe(roberta_tokenizer, _bart, infilling_and_cloze, generates=True),
    "t5": Recipe(t5_tokenizer, _t5, infilling_and_cloze, generates=True),
    "bert": Recipe(bert_tokenizer, _bert, masked_tokens),
    "distilbert": Recipe(distilbert_tokenizer, _distilbert, masked_tokens),
    "roberta": Recipe(roberta_tokenizer, _roberta, masked_tokens),
    "gpt2": Recipe(gpt2_tokenizer, _gpt2, next_tokens),
}
