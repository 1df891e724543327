"""QAScore: how well a masked language model predicts the answer from passage and question.

Source: Ji, Lyu, Jones, Zhou, Graham, "QAScore: An Unsupervised Unreferenced Metric for the Question Generation
Evaluation", Entropy 2022, and its released code (TianboJi/QAScore).
"""

from collections.abc import Mapping, Sequence

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, one_of
from rewards.frozen import FrozenModel, batches_by_length, flat_positions, target_logprobs

SPACE_MARKERS = ("Ġ", "▁")  # how byte-level BPE and SentencePiece mark a token that follows a space


class QAScore(Metric):
    """Log-probability of the answer's tokens under a masked language model that sees all other tokens.

    The input is ``context </s> question </s> answer``, the three tokenised on their own, without ``<s>`` at the
    beginning or ``</s>`` at the end. When it is too long for the model, the beginning of the context is cut
    (``truncation="beginning"``, the released code), or a window around the answer's first occurrence is kept
    (``truncation="answer"``; where the answer does not occur, the beginning is cut). Of an answer that alone is too
    long only the last tokens that fit are scored. Inputs that were cut are counted in `truncated`, logged once.

    ``variant="paper"``: score = sum over the answer's tokens (``unit="token"``) of log p(token | all other tokens),
    the token replaced by ``<mask>``; with ``unit="word"`` all tokens of a white-space word are masked together.
    Natural logarithm, bounds (-inf, 0], higher is better; a longer answer scores lower, so compare questions about
    one answer.

    ``variant="official"`` (the released code, to 1e-5): tokens are masked in the same way, but the value of a token is
    the log-probability of the whole unmasked sequence averaged over all its positions, of which the masked one is one
    in hundreds; score = mean over the answer's tokens.

    Cost: one encoder pass over the whole input for each masked unit; the vocabulary head at the masked positions alone
    (paper) or at all (official).

    Parts: ``token_logprobs``, one list per question with one value per masked unit.
    """

    name = "qascore"
    needs = frozenset({"contexts", "answers"})
    part_names = ("token_logprobs",)
    bounds = (float("-inf"), 0.0)

    def __init__(
        self,
        model: str = "roberta-base",
        variant: str = "paper",
        unit: str = "token",
        *,
        truncation: str = "beginning",
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.variant = one_of(self.name, "variant", variant, ("paper", "official"))
        if unit not in ("token", "word") or (variant == "official" and unit == "word"):
            raise MetricInputError(f"qascore: unit {unit!r} does not exist for variant {variant!r}; use token")
        self.truncation = one_of(self.name, "truncation", truncation, ("beginning", "answer"))
        self.unit, self.dtype, self.batch_size = unit, dtype, batch_of(self.name, batch_size)
        self.model = FrozenModel(model, "masked", device=device, dtype=dtype)
        self._sep = self.model.tokenizer.sep_token_id
        if self.model.tokenizer.mask_token_id is None or self._sep is None:
            raise MetricInputError(f"qascore: the tokenizer of {model!r} lacks a mask or separator token; use RoBERTa")
        vocabulary = self.model.tokenizer.get_vocab().items()
        self._starts_word = {at for piece, at in vocabulary if piece.startswith(SPACE_MARKERS)}
        if unit == "word" and not self._starts_word:
            raise MetricInputError(
                f"qascore: the tokens of {self.model.name!r} do not mark spaces; unit='word' needs a RoBERTa"
            )

    def choices(self) -> Mapping[str, object]:
        return {
            "variant": self.variant,
            "unit": self.unit,
            "model": self.model.identity,
            "truncation": self.truncation,
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        sequences, owners, masks = [], [], []
        texts = (inputs.contexts, inputs.questions, inputs.answers)
        cut = 0
        for row, (context, question, answer) in enumerate(zip(*map(self.model.ids, texts), strict=True)):
            if not answer:  # its score, an empty sum, would be the best possible
                raise MetricInputError(
                    f"qascore: answers[{inputs.rows[row]}] is empty; the metric scores the tokens of the answer"
                )
            after = [self._sep, *question, self._sep, *answer]
            kept = self._cut(inputs.contexts[row], context, inputs.answers[row], len(after))
            ids = [*kept, *after][-self.model.max_tokens :]
            cut += len(ids) < len(context) + len(after)
            answer = answer[-len(ids) :]
            for unit in self._units(answer):
                sequences.append(ids)
                masks.append([len(ids) - len(answer) + at for at in unit])
                owners.append(row)
        self.model.note_cut(
            cut,
            "qascore: an input is longer than the model's %d tokens and its context is cut (logged once; the count is "
            "in `truncated`); truncation='answer' keeps the text around the answer",
            self.model.max_tokens,
        )
        token_logprobs: list[list[float]] = [[] for _ in inputs.questions]
        for row, value in zip(owners, self._unit_scores(sequences, masks), strict=True):
            token_logprobs[row].append(value)
        scores = [sum(values) / (len(values) if self.variant == "official" else 1) for values in token_logprobs]
        return MetricResult(scores, {"token_logprobs": token_logprobs})

    def _cut(self, text: str, context: list[int], answer: str, others: int) -> list[int]:
        room = max(0, self.model.max_tokens - others)
        if len(context) <= room:
            return context
        at = text.find(answer) if self.truncation == "answer" else -1
        if at < 0:
            return context[len(context) - room :]
        first, last = (len(ids) for ids in self.model.ids([text[:at], text[: at + len(answer)]]))
        start = min(max(0, (first + last - room) // 2), len(context) - room)
        return context[start : start + room]

    def _units(self, answer: list[int]) -> list[list[int]]:
        units: list[list[int]] = []
        for at, token in enumerate(answer):
            if self.unit == "token" or at == 0 or token in self._starts_word:
                units.append([])
            units[-1].append(at)
        return units

    def _unit_scores(self, rows: Sequence[list[int]], masks: Sequence[list[int]]) -> list[float]:
        """Return one value per masked copy of a row: ``masks`` holds the positions masked in it."""
        scores = [0.0] * len(rows)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size, self.model.tokens_at_once):
            ids, real = self.model.batch([rows[at] for at in batch]).values()
            masked = [masks[at] for at in batch]
            mask_id = self.model.tokenizer.mask_token_id
            inputs = ids.flatten().index_fill(0, flat_positions(masked, ids), mask_id).view_as(ids)
            hidden, head = self.model.states(input_ids=inputs, attention_mask=real)
            read = masked if self.variant == "paper" else [range(len(rows[at])) for at in batch]
            index = flat_positions(read, ids)
            states, targets = hidden.flatten(0, 1)[index], ids.flatten()[index]
            logprobs = target_logprobs(head, states, targets, vocabulary=self.model.vocabulary).cpu().double()
            for at, values in zip(batch, logprobs.split([*map(len, read)]), strict=True):
                scores[at] = float(values.sum() if self.variant == "paper" else values.mean())
        return scores
