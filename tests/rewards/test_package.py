"""The package's front door: exports, `load`, what it imports, and the configurations that build its metrics."""

import ast
import subprocess
import sys
from inspect import signature
from pathlib import Path

import pytest

import rewards
from rewards import Metric, MetricInputError, QAScore, load

ROOT = Path(__file__).resolve().parents[2]


def test_every_export_is_there():
    assert all(hasattr(rewards, name) for name in rewards.__all__)
    with pytest.raises(AttributeError, match="no attribute 'BLEU'"):
        _ = rewards.BLEU


@pytest.mark.parametrize("name", ["qascore", "rewards.QAScore", "rewards.qascore.QAScore"])
def test_load_by_name_and_by_path(folders, name):
    metric = load(name, model=folders["roberta"], unit="word")
    assert type(metric) is QAScore
    assert metric.unit == "word"


def test_load_takes_anything_importable():
    assert load("fractions.Fraction", numerator=6, denominator=4).numerator == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qrelscor", "unknown metric 'qrelscor'; known are qrelscore, qascore, bartscore"),
        ("no_such_package.Reward", "cannot load the metric 'no_such_package.Reward': No module named"),
        ("rewards.Reward", "cannot load the metric 'rewards.Reward'"),
    ],
)
def test_load_errors(name, message):
    with pytest.raises(MetricInputError, match=message):
        load(name)


WITH_BATCHES = ["QRelScore", "QAScore", "BARTScore", "BERTScore", "MoverScore", "KPQA", "BLEURT", "COMET", "RQUGE"]


@pytest.mark.parametrize("name", WITH_BATCHES)
@pytest.mark.parametrize("size", [0, 2.5, "x"])
def test_a_batch_size_that_is_none_is_refused_before_a_model_is_loaded(name, size):
    options = {"model": "/no/model"} if name == "KPQA" else {}
    with pytest.raises(MetricInputError, match=r"batch_size .* is out of range; give a whole number from 1"):
        getattr(rewards, name)(**options, batch_size=size)


def test_every_metric_with_batches_is_among_these():
    public = {name: getattr(rewards, name) for name in rewards.__all__}
    metrics = {name: kind for name, kind in public.items() if isinstance(kind, type) and issubclass(kind, Metric)}
    assert {name for name in metrics if "batch_size" in signature(metrics[name]).parameters} == set(WITH_BATCHES)


def test_sources_import_nothing_of_the_trainer():
    # ot: for the mover alone; what else a metric needs, `rewards.words.library` imports when it is used
    allowed = {"rewards", "torch", "transformers", "numpy", "ot", "sacrebleu", *sys.stdlib_module_names}
    for path in (ROOT / "rewards").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                names = [node.module]
            assert {name.split(".")[0] for name in names} <= allowed, path


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, rewards; print(sorted({'torch', 'transformers', 'hydra', 'rl_qg'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


CONFIGURED = [name for name in rewards.METRICS if (ROOT / "configs" / "reward" / f"{name}.yaml").exists()]


@pytest.mark.parametrize("name", CONFIGURED)
def test_the_configuration_builds_the_metric_with_its_defaults(folders, name):
    from omegaconf import OmegaConf

    config = OmegaConf.load(ROOT / "configs" / "reward" / f"{name}.yaml")
    options = OmegaConf.to_container(OmegaConf.create({"reward_models": folders, "reward": config}), resolve=True)
    chosen = options["reward"]
    built = load(chosen.pop("_target_"), **chosen)
    models = {key: value for key, value in chosen.items() if key in ("encoder", "decoder", "model")}
    assert built.signature == load(name, **models).signature
    assert built.batch_size == 32


def test_metrics_that_need_models_have_a_configuration():
    assert {"qrelscore", "qascore", "bartscore", "bertscore", "moverscore"} <= set(CONFIGURED)
