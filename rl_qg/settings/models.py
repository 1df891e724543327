"""The question generator, its adapters, and small models for work without a model hub."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, MISSING, NOT_NEGATIVE, POSITIVE, Limits, Section, key


@dataclass
class ModelSettings(Section):
    """The question generator: any seq2seq checkpoint, `miniature:bart` or `miniature:t5`; for `algorithm=rloo` and
    `algorithm=grpo` a causal one, such as `gpt2` or `miniature:gpt2`.
    """

    path: str = key(MISSING, "Hub name, local folder, miniature:bart, miniature:t5 or miniature:questions")
    task: str = key(
        "questions",
        "what the model writes: questions, answers, multitask (both), pairs (all of a passage at once), or sets "
        "(questions without given answers, see ask.granularity)",
        choices=("questions", "answers", "multitask", "pairs", "sets"),
    )
    input: str = key(
        "paragraph_answer",
        "what it reads: paragraph_answer (the passage, its answer marked), sentence_answer (the sentence of the "
        "answer alone), paragraph_sentence (the passage, that sentence marked) or paragraph (nothing marked)",
        choices=("paragraph_answer", "sentence_answer", "paragraph_sentence", "paragraph"),
    )
    language: str | None = key(
        None,
        "of models with language codes (mBART, NLLB), such as de or de_DE; null: the model's own. A language field of "
        "the data comes first",
    )
    prefix: str | None = key(
        None, 'text before every input; null: that of the task for T5, such as "generate question: ", none for others'
    )
    max_source_length: int = key(
        512, "tokens; a longer context is cut to a window around the answer", limits=Limits(16)
    )
    max_target_length: int = key(64, "tokens of a gold question, or of what another task writes", limits=Limits(2))

    def faults(self) -> Iterator[str]:
        """Choices and limits."""
        yield from super().faults()
        if self.task == "multitask" and self.prefix is not None:
            yield f"prefix={self.prefix!r}: set it to null; with task=multitask each input has that of its own task"


@dataclass
class TrimSettings(Section):
    """The vocabulary of a generator without what a corpus does not use (`rl_qg.generation.trim_stage`)."""

    corpus: Any = key("", "text file(s), or QA data as data.train; their pieces are kept")
    pieces: int | None = key(None, "of these pieces the most frequent so many; null: all", limits=COUNT)
    common: int = key(
        0, "of the whole vocabulary, keep besides the so many most frequent pieces of pretraining", limits=NOT_NEGATIVE
    )


@dataclass
class PeftSettings(Section):
    """Adapters instead of full fine-tuning (`peft=lora`). Adapters are merged into the saved models."""

    method: str = key("none", "none (all weights are trained) or lora (low-rank adapters)", choices=("none", "lora"))
    r: int = key(16, "rank of the update", limits=COUNT)
    alpha: int = key(32, "scale times rank of the update", limits=COUNT)
    dropout: float = key(0.05, "in the adapters", limits=FRACTION)
    target_modules: list[str] | None = key(
        None, "layers with an adapter, such as [q_proj,v_proj]; null: peft's choice for the architecture"
    )
    learning_rate_factor: float = key(
        10.0, "factor on both learning rates: adapters need larger steps", limits=POSITIVE
    )


@dataclass
class MiniatureSettings(Section):
    """How small models are pretrained on the training text (`rl_qg.miniatures.cache`)."""

    steps: int = key(800, "updates of the generator", limits=COUNT)
    metric_steps: int = key(400, "updates of each reward model and of the reader", limits=COUNT)
    batch_size: int = key(16, "passages per update", limits=COUNT)
    learning_rate: float = key(2e-3, "peak of the schedule", limits=POSITIVE)
    hidden_size: int = key(128, "of every model", limits=COUNT)
    layers: int = key(2, "of every model; encoder and decoder each", limits=COUNT)
    vocab_size: int = key(2000, "tokens in the vocabulary", limits=COUNT)
    max_tokens: int = key(256, "longest training input", limits=COUNT)
    cache_dir: str = key("~/.cache/rl-qg/miniature", "where trained miniatures are kept")


@dataclass
class QAModelSettings(Section):
    """An encoder to fine-tune: any checkpoint that the task's `AutoModelFor…` class loads, or a miniature."""

    path: str = key("distilbert-base-uncased", "Hub name, local folder, or a miniature such as miniature:distilbert")
