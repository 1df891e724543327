"""RQUGE: whether a model that answers the question finds the expected answer."""

from collections.abc import Mapping, Sequence

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.token_embeddings import Pair
from rewards.frozen import FrozenModel, batches_by_length
from rewards.learned.packages import check_single_output, regress
from rewards.options import batch_of
from rewards.words import normalise_answer


class RQUGE(Metric):
    r"""Whether a model that reads question and passage gives the answer that the question was generated for.

    Source: Mohammadshahi, Scialom, Yazdani, Yanki, Fan, Henderson, Saeidi, "RQUGE: Reference-Free Metric for
    Evaluating Question Generation by Answering the Question", Findings of ACL 2023, section 3 (the question-answering
    module and the span scorer), and its released code (alirezamshi/RQUGE, `rquge_score/scorer.py`). A
    question-answering model reads ``question \n context`` (backslash and n as two characters, as it was trained) and
    writes at most 30 tokens, greedily as its configuration says; a regression reads ``question <q> answer <r> given
    answer <c> context``, all without capitals, articles and punctuation, cut at 512 tokens. About 1 to 5, higher is
    better.

    Differences from the released code: the two checkpoints alone, no package; batches sorted by length instead of one
    example at a time, which changes scores by rounding only; models from safetensors (a checkpoint without has to be
    converted first). Checked: against its steps written with calls of transformers, on small models of the same
    types (T5 and RoBERTa); not run on the released checkpoints.

    Cost: one generation and one pass of the regression for each question.

    Args:
        qa_model: encoder-decoder that answers questions, a local folder or a Hub name.
        span_scorer: regression in transformers form with one output (released: ``alirezamsh/quip-512-mocha``).
        batch_size: questions at a time.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type of the models.

    Raises:
        MetricInputError: a model that cannot be loaded or has more than one output.
    """

    name = "rquge"
    needs = frozenset({"contexts", "answers"})

    def __init__(
        self,
        qa_model: str = "allenai/unifiedqa-v2-t5-large-1363200",
        span_scorer: str = "alirezamsh/quip-512-mocha",
        *,
        batch_size: int = 16,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.reader = FrozenModel(qa_model, "seq2seq", device=device, dtype=dtype)
        self.regressor = FrozenModel(span_scorer, "regressor", device=device, dtype=dtype)
        check_single_output(self.name, self.regressor)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"qa_model": self.reader.identity, "span_scorer": self.regressor.identity, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score per question."""
        answers = self._answers(list(zip(inputs.questions, inputs.contexts, strict=True)))
        columns = (inputs.questions, inputs.answers, answers, inputs.contexts)
        texts = ["{} <q> {} <r> {} <c> {}".format(*map(normalise_answer, row)) for row in zip(*columns, strict=True)]
        limit = min(512, self.regressor.max_tokens)
        encoded = self.regressor.tokenizer(texts, truncation=True, max_length=limit)
        return MetricResult(regress(self.regressor, encoded, self.batch_size), {})

    def _answers(self, pairs: Sequence[Pair]) -> list[str]:
        """Return the model's answer to each question about its context."""
        tokenizer = self.reader.tokenizer
        rows = tokenizer([f"{question} \\n {context}" for question, context in pairs], verbose=False)["input_ids"]
        answers = [""] * len(rows)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size, self.reader.tokens_at_once):
            ids, lengths = self.reader.pad([rows[at] for at in batch], tokenizer.pad_token_id)
            mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
            written = self.reader.model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=30)
            texts = tokenizer.batch_decode(written, skip_special_tokens=True)
            for at, text in zip(batch, texts, strict=True):
                answers[at] = text
        return answers
