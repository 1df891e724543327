"""Rewards on a GPU that is not there: the same scores, and the host waits for values alone."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
import torch

from rewards import BARTScore, BERTScore, QAScore, QRelScore, ReaderScore
from tests.pretended_gpu import PretendedGPU, move_model


@pytest.mark.parametrize(
    "kind", ["bartscore", "bertscore", "qascore paper", "qascore official", "qrelscore", "reader"]
)
def test_a_reward_waits_for_its_values_alone(kind: str, folders: Any, rows: Any) -> None:
    name, _, variant = kind.partition(" ")
    metric: Any = {
        "bartscore": lambda: BARTScore(folders["bart"]),
        "bertscore": lambda: BERTScore(folders["bert"], layer=1),
        "qascore": lambda: QAScore(folders["roberta"], variant),
        "qrelscore": lambda: QRelScore(encoder=folders["bert"], decoder=folders["gpt2"]),
        "reader": lambda: ReaderScore(folders["reader"]),
    }[name]()
    columns = {"questions": rows["questions"]} | {key: rows[key] for key in metric.needs}
    expected = metric.score(**columns).scores
    with PretendedGPU() as gpu, patch.object(torch, "inference_mode", torch.no_grad):
        for model in (getattr(metric, part, None) for part in ("model", "encoder", "decoder")):
            if model is not None:
                model.dispatch("cuda:0", move_model)
        metric.reset_cache()
        got = metric.score(**columns).scores
    assert got == pytest.approx(expected, rel=1e-5)
    # The library looks at masks before a pass; then the values come back. No indices of ours are looked at.
    kinds = Counter(place.partition(",")[0] for place in gpu.waits.elements())
    assert set(kinds) <= {"copy", "aten._local_scalar_dense.default"}, gpu.waits
    assert 1 <= kinds["copy"] <= 3, gpu.waits
