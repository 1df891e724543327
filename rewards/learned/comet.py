"""COMET: a regression of people's ratings of translations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import torch

from rewards.base import Inputs, Metric, MetricResult
from rewards.embedding.token_embeddings import needs_of, pairs_of
from rewards.learned.packages import load_or_explain
from rewards.optional_imports import installed_version, library
from rewards.options import batch_of
from rewards.signature import file_hash


class COMET(Metric):
    """A regression of people's ratings of translations, through the package unbabel-comet.

    Source: Rei, Stewart, Farinha, Lavie, "COMET: A Neural Framework for MT Evaluation", EMNLP 2020, section 2 (the
    estimator), and its released code (Unbabel/COMET), which computes the score. Checkpoints since 2022 give 0 to 1,
    earlier ones z-scores; higher is better. ``against="context"`` is for checkpoints that read source and translation
    alone (``Unbabel/wmt22-cometkiwi-da``: Rei et al., "CometKiwi", WMT 2022).

    Differences: it was trained on translations; here the source is the passage, the translation the question, the
    reference a gold question, so a score has no validated meaning for questions. It takes one reference; here the
    score is the largest over several.

    Checked: the calls are those of the package's README and source (2.2.7: `download_model`, `load_from_checkpoint`,
    ``predict(samples, batch_size, gpus, progress_bar)``), with a stub. Not run against a released checkpoint.

    Args:
        model: Hub name, or the path of a checkpoint file (``…/checkpoints/model.ckpt``).
        against: ``references`` or ``context``.
        batch_size: pairs per forward pass.
        device: a GPU is used when it names one or there is one.

    Raises:
        MetricInputError: the package or model is missing.
    """

    name = "comet"

    def __init__(
        self,
        model: str = "Unbabel/wmt22-comet-da",
        *,
        against: Literal["references", "context"] = "references",
        batch_size: int = 16,
        device: str | torch.device | None = None,
    ) -> None:
        self.needs = needs_of(against, self.name) | {"contexts"}
        self.against, self.batch_size = against, batch_of(self.name, batch_size)
        package = library("comet", self.name, "unbabel-comet")
        path = model if model.endswith(".ckpt") else load_or_explain(self.name, model, package.download_model, model)
        self._model = load_or_explain(self.name, model, package.load_from_checkpoint, path)
        checkpoint = Path(path)
        known = checkpoint.name if model.endswith(".ckpt") else model
        self.identity = f"{known}@{load_or_explain(self.name, model, file_hash, checkpoint)}"
        """``name@hash`` of the checkpoint: the name of its file or on the Hub, and a hash of the file."""
        self.to(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"model": self.identity, "against": self.against, "unbabel-comet": installed_version("unbabel-comet")}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the largest value over the references of each question."""
        pairs, owners = pairs_of(inputs, self.against)
        samples = [
            {"src": inputs.contexts[row], "mt": question} for row, (question, _) in zip(owners, pairs, strict=True)
        ]
        if self.against == "references":
            samples = [{**sample, "ref": reference} for sample, (_, reference) in zip(samples, pairs, strict=True)]
        predicted = self._model.predict(samples, batch_size=self.batch_size, gpus=self._gpus, progress_bar=False)
        values = [float("-inf")] * len(inputs.questions)
        for row, value in zip(owners, predicted.scores, strict=True):
            values[row] = max(values[row], float(value))
        return MetricResult(values, {})

    def to(self, device: str | torch.device) -> Self:
        """Set where the package's trainer runs the model; the trainer moves it."""
        self._gpus = int(torch.device(device).type == "cuda")
        return self
