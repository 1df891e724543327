"""The public interface of the package: exports, `load`, its imports, and the configurations of its metrics."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification

import rewards
from rewards import Metric, MetricInputError, QAScore, known_name, load
from tests.rewards.conftest import TEXT
from tests.tiny_models import piece_tokenizer, save, tiny

ROOT = Path(__file__).resolve().parents[2]


def test_every_export_is_there():
    assert all(hasattr(rewards, name) for name in rewards.__all__)
    assert dir(rewards) == sorted(rewards.__all__)
    with pytest.raises(AttributeError, match="no attribute 'BLEU'"):
        _ = rewards.BLEU


def test_scores_of_sets_are_exported():
    from rewards import sets as question_sets

    for name in ("Multi", "match_sets", "self_bleu", "cardinality_difference"):
        assert getattr(rewards, name) is getattr(question_sets, name)
        assert name in rewards.__all__


@pytest.mark.parametrize(
    "name", ["qascore", "rewards.QAScore", "rewards.relevance.qascore.QAScore", "rewards.qascore.QAScore"]
)
def test_load_by_name_and_by_path(folders, name):
    metric = load(name, model=folders["roberta"], unit="word")
    assert type(metric) is QAScore
    assert metric.unit == "word"


def test_load_takes_any_reward_that_can_be_imported():
    assert load("tests.toy_metrics.WordCount", sign=-1).sign == -1
    with pytest.raises(MetricInputError, match=r"reward fractions.Fraction: has no method score"):
        load("fractions.Fraction", numerator=6, denominator=4)


SPELLINGS = {
    "Q-BLEU1": "q_bleu1", "Q-ROUGE": "q_rouge", "Q-ROUGE-L": "q_rouge_l", "Q-METEOR": "q_meteor",
    "BLEU-4": "bleu4", "ROUGE-L": "rouge_l", "rougeL": "rougeL", "RougeL": "rouge_l", "BERTScore": "bertscore",
    "MoverScore": "moverscore", "BLEU-1-KPQA": "bleu1_kpqa", "ROUGE-L-KPQA": "rouge_l_kpqa",
    "BERTScore-KPQA": "bertscore_kpqa", "Weighted": "weighted", "Q-BLEU4_free": "q_bleu4_free",
}  # fmt: skip


def test_names_in_other_spellings():
    assert {given: known_name(given) for given in SPELLINGS} == SPELLINGS
    assert [known_name(name) for name in rewards.METRICS] == list(rewards.METRICS)
    for other in ("Self-BLEU", "rewards.QAScore", "rewards.Q-BLEU1", "", "-"):
        assert known_name(other) == other
    assert load("Q-BLEU1").signature == load("q_bleu1").signature
    assert load("Q-Rouge").signature == load("q_rouge_l").signature


def test_names_that_differ_in_spelling_alone_are_one_metric():
    spelled: dict[str, list[str]] = {}
    for name in [*rewards.METRICS, "weighted", "product"]:
        spelled.setdefault("".join(sign for sign in name.lower() if sign not in "-_"), []).append(name)
    alike = [group for group in spelled.values() if len(group) > 1]
    assert ["rouge_l", "rougeL"] in alike
    assert all(rewards.METRICS[name] == rewards.METRICS[group[0]] for group in alike for name in group)


@pytest.mark.parametrize("name", rewards.METRICS)
def test_the_docstring_of_every_metric_names_its_source(name):
    """In the class itself (not inherited) or its module."""
    entry = rewards.METRICS[name]
    module, kind = (entry if isinstance(entry, str) else entry[0]).split(":")
    home = import_module(module)
    documentation = f"{home.__doc__}\n{vars(home)[kind].__doc__}"
    assert re.search(r"^\s*Source: .{20,}\b(19|20)\d\d\b", documentation, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("qrelscor", "unknown metric 'qrelscor'; known are qrelscore, qascore, bartscore"),
        ("no_such_package.Reward", "cannot load the metric 'no_such_package.Reward': No module named"),
        ("json.Reward", "cannot load the metric 'json.Reward'"),
    ],
)
def test_load_errors(name, message):
    with pytest.raises(MetricInputError, match=message):
        load(name)


WITH_BATCHES = [
    "QRelScore",
    "QAScore",
    "BARTScore",
    "BERTScore",
    "MoverScore",
    "KPQA",
    "BLEURT",
    "COMET",
    "RQUGE",
    "ReaderScore",
    "Retrievability",
    "Usability",
]


@pytest.mark.parametrize("name", WITH_BATCHES)
@pytest.mark.parametrize("size", [0, 2.5, "x"])
def test_an_invalid_batch_size_raises_before_a_model_is_loaded(name, size):
    options = {"model": "/no/model"} if name in {"KPQA", "Usability"} else {}
    with pytest.raises(MetricInputError, match=r"batch_size .* is out of range; give a whole number from 1"):
        getattr(rewards, name)(**options, batch_size=size)


def test_every_metric_with_batches_is_in_this_list():
    public = {name: getattr(rewards, name) for name in rewards.__all__}
    metrics = {name: kind for name, kind in public.items() if isinstance(kind, type) and issubclass(kind, Metric)}
    assert {name for name in metrics if "batch_size" in signature(metrics[name]).parameters} == set(WITH_BATCHES)


def test_the_sources_do_not_import_the_trainer():
    # what else a metric needs, `rewards.errors.library` imports when it is used
    allowed = {"rewards", "torch", "transformers", "huggingface_hub", "numpy", "sacrebleu", *sys.stdlib_module_names}
    for path in (ROOT / "rewards").rglob("*.py"):
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
def test_the_configuration_builds_the_metric_with_its_defaults(folders, name, tmp_path):
    from omegaconf import OmegaConf

    config = OmegaConf.load(ROOT / "configs" / "reward" / f"{name}.yaml")
    options = OmegaConf.to_container(OmegaConf.create({"reward_models": folders, "reward": config}), resolve=True)
    chosen = options["reward"]
    if name == "meteor15":  # needs files that are not models
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "paraphrase-en.gz").touch()
        chosen |= {"jar": str(tmp_path / "meteor-1.5.jar"), "java": sys.executable}
        (tmp_path / "meteor-1.5.jar").touch()
    if name == "retrievability":
        chosen["passages"] = ["Ada wrote it.", "Bo read it."]
    if name == "usability":  # the packaged one is known to rl_qg
        pieces = piece_tokenizer(text=TEXT)
        classifier = tiny(BertForSequenceClassification, len(pieces), num_labels=2, positions=256)
        chosen["model"] = save(tmp_path / "usability", pieces, classifier)
    built = load(chosen.pop("_target_"), **chosen)
    given = ("encoder", "decoder", "model", "jar", "java", "passages")
    models = {key: value for key, value in chosen.items() if key in given}
    assert built.signature == load(name, **models).signature
    assert getattr(built, "batch_size", 32) == 32


def test_metrics_that_need_models_have_a_configuration():
    assert {"qrelscore", "qascore", "bartscore", "bertscore", "moverscore", "reader"} <= set(CONFIGURED)
