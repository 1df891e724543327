"""A reader as a metric: whether the answer is found by a model that reads the question and the passage."""

from collections.abc import Mapping, Sequence

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError, batch_of, flag, number, one_of
from rewards.frozen import FrozenModel, batches_by_length
from rewards.relevance import reading
from rewards.relevance.reading import PairFormat, SpanLogprobs, TokenizedPassage, WindowLogits
from rewards.words import answer_exact_match, answer_f1

MEASURES = ("probability", "log_probability", "f1", "exact_match")

LOWEST = -30.0  # log-probability that is reported: a reward stays finite where the answer is impossible


class ReaderScore(Metric):
    """Whether an extractive reader that reads the sampled question and the passage finds the expected answer.

    Source: the probability of the answer as a reward: Zhang and Bansal, EMNLP 2019; F1 or exact match of
    what the reader answers: the round trip of Alberti et al., ACL 2019.

    The reader reads ``question, passage`` in its own format. p(start) and p(end) are softmaxes over the positions of
    the passage, question and special tokens left out. The span of the answer is the tokens that share a character
    with it, at every place where its text stands in the passage; the most probable place counts. Of a reader that was
    trained with ``qa.head=sigmoid`` the probabilities of the positions are normalised to sum to 1 instead. ``measure``
    is

    - ``"probability"``: p(start) p(end), from 0 to 1. The default: bounded, so that a gate can be multiplied with it.
    - ``"log_probability"``: log p(start) + log p(end), natural, from -30 (`LOWEST`, lower ones are raised to it) to 0.
    - ``"f1"``, ``"exact_match"``: of the reader's most probable span of at most ``max_answer_length`` tokens and the
      answer, as in SQuAD's script, from 0 to 1.

    Higher is better. Compare questions about one answer: a longer or a rarer one is less probable under every
    question.

    Long passages are read in windows of ``max_length`` tokens that share ``stride`` tokens with their neighbours, with
    one softmax over all of them (`rewards.relevance.reading`). A question takes at most half of a window; the end of a
    longer one is cut (counted in `truncated`, logged once).

    ``abstain=True`` is for readers that were trained with unanswerable questions, as in SQuAD 2: the class token,
    which stands for "no answer", takes part in the softmaxes, and a reader for which it is more probable than every
    span answers nothing (F1 and exact match 0).

    Where nothing can be scored there is no error: if the answer is empty or does not stand in the passage, probability
    is 0 and log-probability `LOWEST`; F1 and exact match are 0 if the reader answers nothing.

    Cost: one pass of the encoder for each window of each pair of question and passage.

    Args:
        model: extractive reader (BERT, DistilBERT, RoBERTa, ELECTRA, ..., a folder of ``rl-qg qa`` included), a local
            folder or a Hub name.
        abstain: whether the reader may answer "no answer"; None: whether its configuration has ``abstains``, as that
            of a reader has which ``rl-qg qa`` trained with ``qa.unanswerable``.
        max_length: tokens in a window, special tokens included; at most those that the model can read, in which case
            ``stride`` is at most a third of them.
        max_answer_length: tokens of the longest answer that the reader may give, for F1 and exact match.

    Parts: ``probability``, ``log_probability``, ``f1`` and ``exact_match``, whatever is the score.
    """

    name = "reader"
    needs = frozenset({"contexts", "answers"})
    part_names = MEASURES

    def __init__(
        self,
        model: str = "distilbert-base-cased-distilled-squad",
        measure: str = "probability",
        *,
        abstain: bool | None = None,
        max_length: int = 384,
        stride: int = 128,
        max_answer_length: int = 30,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.measure, self.dtype = one_of(self.name, "measure", measure, MEASURES), dtype
        self.bounds = (LOWEST, 0.0) if measure == "log_probability" else (0.0, 1.0)
        self.max_answer_length = int(number(self.name, "max_answer_length", max_answer_length, low=1, whole=True))
        self.max_length = int(number(self.name, "max_length", max_length, low=1, whole=True))
        within, longest = f"with max_length {self.max_length}, stride", self.max_length - 1
        self.stride = int(number(self.name, within, stride, low=0, high=longest, whole=True))
        self.batch_size = batch_of(self.name, batch_size)
        self.model = FrozenModel(model, "reader", device=device, dtype=dtype)
        learned = bool(getattr(self.model.model.config, "abstains", False))
        self.abstain = learned if abstain is None else flag(self.name, "abstain", abstain)
        head = getattr(self.model.model, "qa_outputs", None)
        if (outputs := 0 if head is None else head.weight.shape[0]) != 2:
            raise MetricInputError(
                f"reader: {self.model.name!r} has a span head with {outputs} outputs for each token; an extractive "
                "reader has 2, for start and end"
            )
        self._format = PairFormat.of(self.model)
        if self.abstain and self._format.class_position is None:
            raise MetricInputError(f"reader: the tokenizer of {model!r} has no class token; abstain=true needs one")
        if self.model.max_tokens < self.max_length:
            self.max_length, self.stride = self.model.max_tokens, min(self.stride, self.model.max_tokens // 3)
        self._room = self.max_length - self._format.size
        # Every window must bring a token of the passage that the one before it does not have.
        self._question_limit = min(self._room // 2, self._room - self.stride - 1)
        if self._question_limit < 1:
            raise MetricInputError(
                f"reader: windows of max_length {self.max_length} that share stride {self.stride} tokens have no room "
                "for a question; raise the first or lower the second"
            )

    def choices(self) -> Mapping[str, object]:
        return {
            "measure": self.measure,
            "model": self.model.identity,
            "abstain": "yes" if self.abstain else "no",
            "max_length": self.max_length,
            "stride": self.stride,
            "max_answer_length": self.max_answer_length,
            "dtype": self.dtype,
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        passages = reading.tokenized_passages(self.model, inputs.contexts)
        spans = self._spans(self._questions(inputs.questions), passages)
        logprobs = _answer_logprobs(spans, passages, inputs.answers)
        values, first, last = spans.best(self.max_answer_length)
        answers = (values >= spans.no_answer) & (first >= 0)  # the others abstain, or have nothing to read
        ends = zip(answers.tolist(), first.tolist(), last.tolist(), _starts(passages).tolist(), strict=True)
        predicted = [
            passage.span(begin - start, end - start) if some else None
            for (some, begin, end, start), passage in zip(ends, passages, strict=True)
        ]
        answered = list(zip(predicted, inputs.answers, strict=True))
        parts = {
            "probability": logprobs.exp().tolist(),
            "log_probability": logprobs.clamp(min=LOWEST).tolist(),
            "f1": [0.0 if given is None else answer_f1(given, answer) for given, answer in answered],
            "exact_match": [0.0 if given is None else answer_exact_match(given, answer) for given, answer in answered],
        }
        return MetricResult(list(parts[self.measure]), parts)

    @torch.inference_mode()
    def impossible(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        """Return for each question how sure the reader is that its passage does not answer it: p(start) p(end) of the
        class token, each a softmax over this token and the passage's tokens. 1 for an empty passage.

        1 minus this is an answerability, by which Ray Chowdhury et al., 2022, section 5 (arXiv 2203.04464), rank
        questions, and they drop those below 0.5; their text has no formula of it.
        """
        if not self.abstain:
            raise MetricInputError(
                f"reader: {self.model.name!r} has not learned to abstain, and does not know what is impossible; "
                "train a reader with rl-qg qa qa.unanswerable=0.5, or give abstain=true for one of SQuAD 2"
            )
        passages = reading.tokenized_passages(self.model, contexts)
        values = self._spans(self._questions(questions), passages).no_answer.exp().tolist()
        return [value if passage.ids else 1.0 for value, passage in zip(values, passages, strict=True)]

    def _questions(self, texts: Sequence[str]) -> list[list[int]]:
        questions = self.model.ids(texts)
        self.model.note_long(self.name, map(len, questions), self._question_limit)
        return [ids[: self._question_limit] for ids in questions]

    def _spans(self, questions: Sequence[list[int]], passages: Sequence[TokenizedPassage]) -> SpanLogprobs:
        windows = [
            (row, start, min(self._room - len(question), len(passage.ids) - start))  # and how many tokens it holds
            for row, (question, passage) in enumerate(zip(questions, passages, strict=True))
            for start in reading.window_starts(len(passage.ids), self._room - len(question), self.stride)
            if passage.ids
        ]
        owners, begins, held = torch.tensor(windows, dtype=torch.long).reshape(-1, 3).unbind(1)
        asked = torch.tensor([len(questions[row]) for row, *_ in windows], dtype=torch.long)
        lengths = (asked + held + self._format.size).tolist()
        # In a window the passage begins at `first`; among the tokens of all passages at `index`.
        first = (len(self._format.before) + len(self._format.between) + asked)[:, None]
        index = (_starts(passages)[owners] + begins)[:, None]
        values, tokens = [torch.zeros(2, 0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.long)]
        class_values = torch.zeros(2, len(windows), dtype=torch.float64) if self.abstain else None
        for batch in batches_by_length(lengths, self.batch_size, self.model.tokens_at_once):
            chosen = (windows[at] for at in batch)
            logits = self._logits([(questions[row], passages[row].ids[at : at + size]) for row, at, size in chosen])
            position = torch.arange(logits.shape[-1])
            inside = (position >= first[batch]) & (position < first[batch] + held[batch][:, None])
            values.append(logits[:, inside])
            tokens.append((index[batch] + position - first[batch])[inside])
            if class_values is not None:
                class_values[:, batch] = logits[:, :, self._format.class_position]
        rows = torch.repeat_interleave(torch.tensor([len(passage.ids) for passage in passages], dtype=torch.long))
        return WindowLogits(torch.cat(values, 1), torch.cat(tokens), class_values, owners).spans(rows, len(passages))

    def _logits(self, pieces: Sequence[tuple[list[int], list[int]]]) -> torch.Tensor:
        """Return start and end logits of questions with pieces of passages, [2, rows, longest] (float64, CPU)."""
        types = None
        if self._format.token_types is not None:
            types = [self._format.types(len(question), len(passage)) for question, passage in pieces]
        output = self.model.model(**self.model.batch([self._format.ids(*piece) for piece in pieces], types))
        logits = torch.stack([output.start_logits, output.end_logits]).float().cpu().double()
        return reading.span_scores(logits, self.model.model.config)


def _starts(passages: Sequence[TokenizedPassage]) -> torch.Tensor:
    """Return the index of each passage's first token among those of all, [R]."""
    sizes = torch.tensor([len(passage.ids) for passage in passages], dtype=torch.long)
    return sizes.cumsum(0) - sizes


def _answer_logprobs(
    spans: SpanLogprobs, passages: Sequence[TokenizedPassage], answers: Sequence[str]
) -> torch.Tensor:
    """Return the log-probability of each answer at its most probable place, [R]; -inf where it stands nowhere."""
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    ends = []
    for row, (passage, answer, offset) in enumerate(zip(passages, answers, _starts(passages).tolist(), strict=True)):
        key = (id(passage), answer)
        if key not in found:
            found[key] = passage.places(answer)
        ends += [(offset + first, offset + last, row) for first, last in found[key]]
    return spans.at(*torch.tensor(ends, dtype=torch.long).reshape(-1, 3).unbind(1))
