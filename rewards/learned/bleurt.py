"""BLEURT: a regression of people's ratings."""

from collections.abc import Mapping, Sequence
from typing import Self

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.token_embeddings import Pair, pairs_of
from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, batches_by_length
from rewards.learned.packages import check_single_output, load_or_explain, regress
from rewards.optional_imports import installed_version, library
from rewards.options import batch_of
from rewards.signature import model_identity


class BLEURT(Metric):
    """A regression of people's ratings from a reference and a candidate, read together by a BERT.

    Source: Sellam, Das, Parikh, "BLEURT: Learning Robust Metrics for Text Generation", ACL 2020, section 3 (a linear
    layer on the vector of ``[CLS]``), and its released code (google-research/bleurt, TensorFlow). Models of the second
    generation (Pu et al. 2021, BLEURT-20) give about 0 to 1, without bounds; higher is better. The model reads
    ``[CLS] reference [SEP] question [SEP]``.

    Differences from the released code: PyTorch and converted checkpoints; it takes one reference, here the score is
    the largest over several; long pairs are cut at 512 tokens (plain form: the model's length), the longer text first.

    ``model`` is a checkpoint in transformers form with one output. Those of model type ``bleurt`` need the package
    bleurt-pytorch (lucadiliello/bleurt-pytorch), whose converted checkpoints (``lucadiliello/BLEURT-20-D12``) are on
    the Hub; any other type, such as a BERT, needs none, but safetensors.

    Checked: the plain form against a checkpoint built for the test, pair by pair; of the package's form only that
    classes and calls are those of its README, with a stand-in. That the converted checkpoints give Google's numbers is
    claimed by their author.

    Args:
        model: checkpoint, a local folder or a Hub name.
        batch_size: pairs per forward pass.
        device: where to run; None takes the current GPU if there is one, else the CPU.
        dtype: floating-point type, for checkpoints that need no package.

    Raises:
        MetricInputError: the package or model is missing, the model has more than one output, or dtype does not apply.
    """

    name = "bleurt"
    needs = frozenset({"references"})

    def __init__(
        self,
        model: str = "lucadiliello/BLEURT-20-D12",
        *,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self._model = _PackagedBleurt(model, device) if _is_bleurt(model) else None
        if self._model and dtype != "float32":
            raise MetricInputError(f"bleurt: dtype {dtype!r} is for checkpoints that need no package; leave it out")
        self.regressor = None if self._model else FrozenModel(model, "regressor", device=device, dtype=dtype)
        if self.regressor is not None:
            check_single_output(self.name, self.regressor)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        if self.regressor is not None:
            return {"model": self.regressor.identity, "dtype": self.dtype}
        return {
            "model": self._model.identity if self._model else "",
            "bleurt-pytorch": installed_version("bleurt-pytorch"),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the largest value over the references of each question."""
        pairs, owners = pairs_of(inputs, "references")
        score = self._model or self._plain
        values = [float("-inf")] * len(inputs.questions)
        for row, value in zip(owners, score(pairs, self.batch_size), strict=True):
            values[row] = max(values[row], value)
        return MetricResult(values, {})

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device."""
        if self._model:
            self._model.model.to(device)
        return super().to(device)

    def _plain(self, pairs: Sequence[Pair], batch_size: int) -> list[float]:
        assert self.regressor is not None
        tokenizer = self.regressor.tokenizer
        encoded = tokenizer(
            [reference for _, reference in pairs],
            [question for question, _ in pairs],
            truncation=True,
            max_length=self.regressor.max_tokens,
        )
        return regress(self.regressor, encoded, batch_size)


class _PackagedBleurt:
    """A checkpoint of model type ``bleurt``, as its package loads and calls it."""

    def __init__(self, model: str, device: str | torch.device | None) -> None:
        package = library("bleurt_pytorch", "bleurt", "git+https://github.com/lucadiliello/bleurt-pytorch.git")
        self.tokenizer = load_or_explain("bleurt", model, package.BleurtTokenizer.from_pretrained, model)
        self.model = load_or_explain("bleurt", model, package.BleurtForSequenceClassification.from_pretrained, model)
        self.identity = model_identity(model, self.model.config)
        self.model.eval().to(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, pairs: Sequence[Pair], batch_size: int) -> list[float]:
        values = [0.0] * len(pairs)
        lengths = [len(question) + len(reference) for question, reference in pairs]
        for batch in batches_by_length(lengths, batch_size, 1 << 40):
            questions, references = zip(*(pairs[at] for at in batch), strict=True)
            encoded = self.tokenizer(
                list(references),
                list(questions),
                padding="longest",
                truncation=True,
                max_length=512,
                return_tensors="pt",
            )
            device = next(self.model.parameters()).device
            logits = self.model(**{name: value.to(device) for name, value in encoded.items()}).logits
            for at, value in zip(batch, logits.flatten().tolist(), strict=True):
                values[at] = value
        return values


def _is_bleurt(model: str) -> bool:
    """Whether a checkpoint is of the type that transformers does not know."""
    from transformers import PretrainedConfig

    found, _ = load_or_explain("bleurt", model, PretrainedConfig.get_config_dict, model)
    return found.get("model_type") == "bleurt"
