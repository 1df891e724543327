"""Placement of a reward's frozen models: every metric scores the same, and no more stays than the fraction allows."""

import pytest
import torch
from accelerate import PartialState

import rewards
from rewards.frozen import FrozenModel
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.scoring import placement
from rl_qg.scoring.metrics import load_reward
from rl_qg.scoring.placement import frozen_models, offload, place_reward
from tests.rewards.conftest import folders, rows  # noqa: F401  (fixtures: tiny models and texts)

CPU = torch.device("cpu")
METRICS = {
    "qrelscore": {"encoder": "bert", "decoder": "gpt2"},
    "qascore": {"model": "roberta"},
    "bartscore": {"model": "bart"},
}


def built(name: str, folders: dict[str, str]) -> rewards.Metric:  # noqa: F811
    return rewards.load(name, **{key: folders[value] for key, value in METRICS[name].items()}, device="cpu")


def scores(metric, rows) -> list[float]:  # noqa: F811
    return metric.score(
        rows["questions"], rows["contexts"], answers=rows["answers"], references=rows["references"]
    ).scores


def resident(models: list[FrozenModel]) -> int:
    """Bytes of the weights on the device between two passes."""
    weights = {id(weight): weight for model in models for weight in model.model.parameters()}
    return sum(weight.nbytes for weight in weights.values())


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_scores_the_same_with_layers_on_the_host(name, folders, rows):  # noqa: F811
    metric = built(name, folders)
    models = frozen_models(metric)
    packed = scores(metric, rows)
    for model in models:
        model.plain()
    want, whole = scores(metric, rows), resident(models)
    assert want == pytest.approx(packed, abs=1e-5)
    for budget in (0, 0.9 * whole):
        offloaded = built(name, folders)
        models = frozen_models(offloaded)
        offload(models, CPU, int(budget))
        assert resident(models) < 0.85 * whole
        assert scores(offloaded, rows) == want
        assert scores(offloaded, rows) == want
        assert resident(models) < 0.85 * whole  # the copied layers were released


def test_layers_stay_that_fit_next_to_one_being_copied(folders):  # noqa: F811
    def left(budget: int) -> int:
        models = frozen_models(built("bartscore", folders))
        offload(models, CPU, budget)
        return resident(models)

    model = frozen_models(built("bartscore", folders))[0].plain()
    whole = sum(weight.nbytes for weight in model.parameters())
    encoder, *decoder = (
        sum(weight.nbytes for weight in layer.parameters())
        for layer in (*model.get_encoder().layers, *model.get_decoder().layers)
    )
    bare, copied = whole - encoder - sum(decoder), max(decoder)
    assert left(0) == left(bare + copied + encoder - 1) == bare
    assert left(bare + copied + encoder) == left(whole - 1) == bare + encoder
    assert left(whole) == whole


def test_models_divide_the_budget_by_their_size(folders):  # noqa: F811
    models = frozen_models(built("qrelscore", folders))
    sizes = [sum(weight.nbytes for weight in model.plain().parameters()) for model in models]
    offload(models, CPU, sum(sizes) - 1)
    assert all(resident([model]) < size for model, size in zip(models, sizes, strict=True))


def test_a_pass_that_fails_releases_its_layers(folders, rows, monkeypatch):  # noqa: F811
    metric = built("qascore", folders)
    models = frozen_models(metric)
    offload(models, CPU, 0)
    before, want = resident(models), scores(metric, rows)

    def fail(*_):
        raise torch.OutOfMemoryError("no memory")

    hook = models[0].model.base_model.encoder.layer[1].attention.register_forward_hook(fail)
    with pytest.raises(torch.OutOfMemoryError):
        scores(metric, rows)
    hook.remove()
    assert resident(models) == before
    assert scores(metric, rows) == want


def test_a_model_with_layers_on_the_host_cannot_move(folders):  # noqa: F811
    metric = built("bartscore", folders)
    offload(frozen_models(metric), CPU, 0)
    assert metric.to("cpu") is metric
    with pytest.raises(rewards.MetricInputError, match=r"bart' is distributed over devices and cannot move"):
        metric.to("meta")


class CustomReward:
    """A reward of a third party, which moves but has no frozen models."""

    device = None

    def score(self, questions, contexts, **_):
        raise NotImplementedError

    def to(self, device):
        self.device = torch.device(device)


def test_a_fraction_applies_to_the_frozen_models_among_the_parts(folders, monkeypatch, caplog):  # noqa: F811
    calls: list[tuple[list[FrozenModel], int]] = []
    monkeypatch.setattr(placement, "_memory", lambda device: 1000)
    monkeypatch.setattr(placement, "offload", lambda models, device, budget: calls.append((list(models), budget)))
    custom = CustomReward()
    inner = rewards.Weighted({"bartscore": built("bartscore", folders), "mine": custom})
    reward = rewards.Product({"qrelscore": built("qrelscore", folders), "both": inner})
    place_reward(reward, 0.2, CPU)
    (models, budget) = calls[0]
    assert len(calls) == 1 and budget == 200
    assert [model.name for model in models] == [folders[name] for name in ("bert", "gpt2", "bart")]
    assert custom.device == CPU
    assert "reward_placement=0.2 has no effect on the reward: CustomReward has no frozen models" in caplog.text


def test_without_an_accelerator_a_fraction_has_no_effect(folders, rows, caplog):  # noqa: F811
    metric = built("qascore", folders)
    want, before = scores(metric, rows), resident(frozen_models(metric))
    place_reward(metric, 0.5, CPU)
    assert "has no effect on the reward: there is no accelerator" in caplog.text
    assert (scores(metric, rows), resident(frozen_models(metric))) == (want, before)


def test_device_and_cpu_move_the_whole_reward():
    custom, meta = CustomReward(), torch.device("meta")
    place_reward(custom, "device", meta)
    assert custom.device == meta
    place_reward(custom, "cpu", meta)
    assert custom.device == CPU
    place_reward(object(), "cpu", meta)  # a reward that cannot move is left alone


def test_a_reward_loads_on_its_device(folders, monkeypatch):  # noqa: F811
    state = PartialState(cpu=True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # the default device of models
    options = {"_target_": "bartscore", "model": folders["bart"]}
    for where in ("device", "cpu", 0.5):
        loaded = load_reward(options, state, where)
        assert [model.device for model in frozen_models(loaded)] == [CPU]


@pytest.mark.parametrize("wrong", ["gpu", "0", "1.5", "-0.1", "true", "null", "[0.5]"])
def test_an_unknown_placement_is_one_line(wrong):
    with pytest.raises(
        InputError, match=r"training\.reward_placement=.* is not device, cpu, or a fraction in \(0, 1\]"
    ):
        compose("train", [f"training.reward_placement={wrong}"]).check()


@pytest.mark.parametrize(("given", "want"), [("device", "device"), ("cpu", "cpu"), ("0.2", 0.2), ("1", 1)])
def test_a_placement_is_a_word_or_a_number(given, want):
    settings = compose("train", [f"training.reward_placement={given}"])
    settings.check()
    assert settings.training.reward_placement == want
