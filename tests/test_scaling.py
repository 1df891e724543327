"""The cost model of docs/explanation/scaling.md: against torch's own counts, and the document against the model."""

import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import T5ForConditionalGeneration

from rl_qg.generation.sharing import share_encoder_pass
from tests.tiny_models import tiny

ROOT = Path(__file__).parent.parent
SCRIPTS = str(ROOT / "experiments" / "scaling")
sys.path.insert(0, SCRIPTS)

import cost_model  # noqa: E402
import costs  # noqa: E402
import tables  # noqa: E402

sys.path.remove(SCRIPTS)


def test_operations_of_an_update_are_those_that_torch_counts() -> None:
    shape = {"d_kv": 6, "d_ff": 20, "num_decoder_layers": 3}
    model = tiny(T5ForConditionalGeneration, 50, hidden=8, layers=2, heads=3, dropout=0.1, **shape).train()
    sizes = cost_model.Architecture(8, 18, 20, 2, 3, 50, 0)
    work = cost_model.Work(rows=2, context=11, question=5)
    of_row = torch.tensor([0, 0, 1, 1])
    with FlopCounterMode(display=False) as counter, share_encoder_pass(model, torch.ones(2, 11), of_row):
        logits = model(
            input_ids=torch.ones(2, 11, dtype=torch.long),
            attention_mask=torch.ones(4, 11),
            decoder_input_ids=torch.ones(4, 5, dtype=torch.long),
        ).logits
        logits.sum().backward()
    assert cost_model.update(sizes, work, rows=2) == counter.get_total_flops()


def test_every_prediction_is_near_its_measurement() -> None:
    predictions = tables.check()
    assert len(predictions) > 40
    for name, predicted, measured in predictions:
        exact = name.startswith(("parameters", "operations", "handed", "checkpoint", "optimizer"))
        assert predicted == pytest.approx(measured, rel=0.005 if exact else 0.3), name


@pytest.mark.parametrize("way", cost_model.WAYS)
def test_more_processes_never_need_more_memory_each_nor_less_sending(way: str) -> None:
    for name in tables.GENERATORS:
        model = cost_model.ARCHITECTURES[name]
        needs = [cost_model.states(model, way, gpus) for gpus in (2, 8, 64)]
        assert needs == sorted(needs, reverse=True)
        sending = [cost_model.sent(model, way, gpus, rollout=True) for gpus in (1, 8, 64)]
        assert sending == sorted(sending) and sending[0] == 0


def test_the_document_shows_what_the_model_says() -> None:
    document = (ROOT / "docs" / "explanation" / "scaling.md").read_text(encoding="utf-8")
    for part in tables.PARTS:
        for line in part().splitlines():
            assert line in document, (
                f"docs/explanation/scaling.md lacks a line of {part.__name__}; run experiments/scaling/tables.py"
            )


def test_the_pages_about_costs_show_what_the_model_says() -> None:
    pages = {
        costs.places: "explanation/cost.md",
        costs.numbers: "how-to/many-gpus.md",
        costs.plan: "explanation/scaling.md",
        costs.full_size: "../experiments/augmentation/README.md",
    }
    assert set(pages) == set(costs.PARTS)
    for part, page in pages.items():
        assert part() in (ROOT / "docs" / page).read_text(encoding="utf-8"), f"{page}: {part.__name__} has changed"


def test_n_gpus_take_an_nth_and_the_time_to_send() -> None:
    one, eight = (costs.hours(costs.machines()["H100"], "bart-base", gpus) for gpus in (1, 8))
    assert all(eight[name] == pytest.approx(one[name] / 8) for name in ("generate", "score", "qa"))
    assert all(one[name] / 8 < eight[name] < one[name] for name in ("CE", "SCST"))
