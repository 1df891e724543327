"""Tokenizers of the miniatures: trained on the text, in the format of each architecture."""

from collections.abc import Iterator

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.settings import MiniatureSettings


def _byte_level(texts: Iterator[str], settings: MiniatureSettings, special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=settings.vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        ),
    )
    return tokenizer


def roberta_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """Byte-level BPE in the format of RoBERTa and BART: `<s> text </s>`."""
    tokenizer = _byte_level(texts, settings, ["<s>", "<pad>", "</s>", "<unk>", "<mask>", HIGHLIGHT])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=1024,
        model_input_names=["input_ids", "attention_mask"],
    )


def gpt2_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """Byte-level BPE in the format of GPT-2: one end-of-text token is bos, eos and unk."""
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(
        tokenizer_object=_byte_level(texts, settings, [end]),
        bos_token=end,
        eos_token=end,
        unk_token=end,
        model_max_length=1024,
        model_input_names=["input_ids", "attention_mask"],
    )


def t5_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """Unigram pieces in the format of T5: `text </s>`, with one sentinel as the mask."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>", "<extra_id_0>", HIGHLIGHT]
    tokenizer.train_from_iterator(
        texts,
        trainers.UnigramTrainer(
            vocab_size=settings.vocab_size, special_tokens=special, unk_token="<unk>", show_progress=False
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<extra_id_0>",
        model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )


def bert_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """Cased WordPiece in the format of BERT: `[CLS] text [SEP] pair [SEP]` with token types."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=settings.vocab_size, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_max_length=512,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def distilbert_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """BERT's tokenizer without token types."""
    tokenizer = bert_tokenizer(texts, settings)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer
