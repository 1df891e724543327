"""Recipes of the miniatures: tokenizer, architecture (`recipes.yaml`) and pretraining objective of each kind."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import log

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.runtime.files import packaged_yaml
from rl_qg.settings import MiniatureSettings
from rl_qg.text.spans import sentence_texts

# Pretraining objectives: each turns a batch of passages into model inputs with labels.
# The objectives are those of the full-size models: text infilling (BART, T5), masked tokens (BERT, RoBERTa,
# DistilBERT) and next tokens (GPT-2). Generators also learn cloze. Sentences and questions are shown together with
# their passage, because the metrics and the reader see a question together with a passage.

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class PretrainingPassage:
    """A training passage and its known questions (none for an unlabelled passage)."""

    context: str
    questions: tuple[str, ...] = ()


def _unit(passage: PretrainingPassage, rng: random.Random) -> str:
    """A sentence of the passage; half of the time a known question instead, if there is one."""
    if passage.questions and rng.random() < 0.5:
        return rng.choice(passage.questions)
    return rng.choice(sentence_texts(passage.context))


def infilling_and_cloze(
    tokenizer: PreTrainedTokenizerFast, max_tokens: int
) -> Callable[[list[PretrainingPassage]], Batch]:
    """Cloze (70 %) and text infilling (BART, 30 %).

    Infilling restores one sentence or question in which each masked span is a single mask token, alone or within its
    passage. Cloze marks a few words of the passage as `<hl> answer <hl>`, exactly as in the input of a question
    generator; the target is the sentence with a mask in place of these words.
    """
    rng = random.Random(0)
    mask: str = tokenizer.mask_token

    def infill(passage: PretrainingPassage) -> tuple[str, str]:
        unit = _unit(passage, rng)
        words, masked, position = unit.split(" "), list[str](), 0
        while position < len(words):  # about a third of the words, in spans of one to four
            is_masked = rng.random() < 0.15
            masked.append(mask if is_masked else words[position])
            position += rng.randint(1, 4) if is_masked else 1
        source = " ".join(masked)
        before, match, after = passage.context.partition(unit)
        return (before + source + after if match and rng.random() < 0.5 else source), unit

    def cloze(passage: PretrainingPassage) -> tuple[str, str]:
        sentence = rng.choice(sentence_texts(passage.context))
        words = sentence.split(" ")
        first = rng.randrange(len(words))
        last = min(len(words), first + rng.randint(1, 3))
        head, answer, tail = (" ".join(part) for part in (words[:first], words[first:last], words[last:]))
        before, _, after = passage.context.partition(sentence)
        source = before + " ".join(part for part in (head, f"{HIGHLIGHT} {answer} {HIGHLIGHT}", tail) if part) + after
        return source, " ".join(part for part in (head, mask, tail) if part)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        pairs = [cloze(passage) if rng.random() < 0.7 else infill(passage) for passage in passages]
        sources, targets = zip(*pairs, strict=True)
        options = {"truncation": True, "max_length": max_tokens, "padding": True, "return_tensors": "pt"}
        batch = tokenizer(list(sources), **options)
        labels = tokenizer(text_target=list(targets), **options)
        batch["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
        return dict(batch)

    return collate


def masked_tokens(tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Callable[[list[PretrainingPassage]], Batch]:
    """Masked tokens (BERT, RoBERTa) of `unit [SEP] passage`: 30 % of the unit's tokens, 10 % of the passage's."""
    rng = random.Random(0)
    special = torch.tensor(tokenizer.all_special_ids)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        units = [_unit(passage, rng) for passage in passages]
        contexts = [passage.context for passage in passages]
        batch = tokenizer(
            units, contexts, truncation="longest_first", max_length=max_tokens, padding=True, return_tensors="pt"
        )
        ids = batch["input_ids"]
        second = torch.tensor([[part == 1 for part in batch.sequence_ids(row)] for row in range(len(units))])
        chosen = torch.rand(ids.shape) < torch.where(second, 0.1, 0.3)
        chosen &= ~torch.isin(ids, special)
        batch["labels"] = ids.masked_fill(~chosen, -100)
        batch["input_ids"] = ids.masked_fill(chosen & (torch.rand(ids.shape) < 0.9), tokenizer.mask_token_id)
        return dict(batch)

    return collate


def next_tokens(tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Callable[[list[PretrainingPassage]], Batch]:
    """Next tokens (GPT-2) of the passage, alone or after one of its sentences or questions."""
    rng = random.Random(0)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        rows = []
        for passage in passages:
            text = passage.context if rng.random() < 0.25 else f"{_unit(passage, rng)} {passage.context}"
            ids = tokenizer(text, truncation=True, max_length=max_tokens - 2)["input_ids"]
            rows.append(torch.tensor([tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]))
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.eos_token_id)
        real = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
        return {"input_ids": ids, "attention_mask": real.long(), "labels": ids.masked_fill(~real, -100)}

    return collate


# Tokenizers of the miniatures: trained on the text, in the format of each architecture.
# The same text gives the same tokenizer in every process. The library's trainers of WordPiece and Unigram number
# letters and sum in the order of a hash table, which differs from process to process; its BPE trainer does not.


_DATA = packaged_yaml(__file__, "recipes.yaml")


def _in_format(name: str, tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **_DATA["tokenizers"][name])


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
    return _in_format("roberta", tokenizer)


def gpt2_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """Byte-level BPE in the format of GPT-2: one end-of-text token is bos, eos and unk."""
    return _in_format("gpt2", _byte_level(texts, settings, ["<|endoftext|>"]))


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
        lines, trainers.BpeTrainer(vocab_size=settings.vocab_size, special_tokens=special, show_progress=False)
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
    return _in_format("t5", tokenizer)


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
    return _in_format("bert", tokenizer)


def distilbert_tokenizer(texts: Iterator[str], settings: MiniatureSettings) -> PreTrainedTokenizerFast:
    """BERT's tokenizer without token types."""
    tokenizer = bert_tokenizer(texts, settings)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    return tokenizer


FORMAT = 1  # increase it when a recipe changes, so that models cached under the old one are not used


def _model(kind: str, tokenizer: PreTrainedTokenizerFast, settings: MiniatureSettings) -> PreTrainedModel:
    entry, width = dict(_DATA["models"][kind]), settings.hidden_size
    sizes = {"vocabulary": len(tokenizer), "width": width, "inner": 4 * width, "head": width // 4}
    sizes |= {"layers": settings.layers, "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
    config, model = (getattr(transformers, entry.pop(name)) for name in ("config", "model"))
    return model(config(**{name: sizes.get(value, value) for name, value in entry.items()}))


@dataclass(frozen=True)
class Recipe:
    """Tokenizer, architecture and objective of one kind of miniature."""

    tokenizer: Callable[[Iterator[str], MiniatureSettings], PreTrainedTokenizerFast]
    model: Callable[[PreTrainedTokenizerFast, MiniatureSettings], PreTrainedModel]
    objective: Callable[[PreTrainedTokenizerFast, int], Callable[[list[PretrainingPassage]], Batch]]
    generates: bool = False


RECIPES = {
    "bart": Recipe(roberta_tokenizer, partial(_model, "bart"), infilling_and_cloze, generates=True),
    "t5": Recipe(t5_tokenizer, partial(_model, "t5"), infilling_and_cloze, generates=True),
    "bert": Recipe(bert_tokenizer, partial(_model, "bert"), masked_tokens),
    "distilbert": Recipe(distilbert_tokenizer, partial(_model, "distilbert"), masked_tokens),
    "roberta": Recipe(roberta_tokenizer, partial(_model, "roberta"), masked_tokens),
    "gpt2": Recipe(gpt2_tokenizer, partial(_model, "gpt2"), next_tokens),
}
