"""Tokenizers of the miniatures: trained on the text, in the format of each architecture.

The same text gives the same tokenizer in every process. The library's trainers of WordPiece and Unigram number letters
and sum in the order of a hash table, which differs from process to process; its BPE trainer does not.
"""

from collections import Counter
from collections.abc import Iterator
from math import log

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
    """Unigram pieces in the format of T5: `text </s>`, with one sentinel as the mask.

    The pieces are those of BPE, which Kudo (2018, section 3.2) names as a vocabulary to begin with; the score of each
    is the logarithm of its frequency in the text, plus one.
    """
    lines = [*texts]
    by_merges, special = Tokenizer(models.BPE()), ["<pad>", "</s>", "<unk>", "<extra_id_0>", HIGHLIGHT]
    by_merges.normalizer = normalizers.NFKC()
    by_merges.pre_tokenizer = pre_tokenizers.Metaspace()
    by_merges.train_from_iterator(
        lines,
        trainers.BpeTrainer(vocab_size=settings.vocab_size, special_tokens=special, show_progress=False),
    )
    counts = Counter(piece for row in by_merges.encode_batch(lines) for piece in row.tokens)
    learnt = sorted(by_merges.get_vocab().keys() - {*special}, key=lambda piece: (-counts[piece], piece))
    scores = [(piece, log((counts[piece] + 1) / (counts.total() + len(learnt)))) for piece in learnt]
    tokenizer = Tokenizer(models.Unigram([*((token, 0.0) for token in special), *scores], special.index("<unk>")))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer, tokenizer.pre_tokenizer = by_merges.normalizer, by_merges.pre_tokenizer
    tokenizer.decoder = decoders.Metaspace()
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
    lines, learner = [*texts], Tokenizer(models.WordPiece(unk_token="[UNK]"))
    learner.normalizer = normalizers.BertNormalizer(lowercase=False)
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words = (learner.pre_tokenizer.pre_tokenize_str(learner.normalizer.normalize_str(text)) for text in lines)
    inside = {letter for row in words for word, _ in row for letter in word[1:]}
    # Tokens that are given are numbered first. Equal pairs are merged in the order of their numbers.
    given = [*special, *(f"##{letter}" for letter in sorted(inside))]
    learner.train_from_iterator(
        lines, trainers.WordPieceTrainer(vocab_size=settings.vocab_size, special_tokens=given, show_progress=False)
    )
    tokenizer = Tokenizer(models.WordPiece(learner.get_vocab(), unk_token="[UNK]"))
    tokenizer.add_special_tokens(special)
    tokenizer.normalizer, tokenizer.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    tokenizer.decoder = decoders.WordPiece()
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
