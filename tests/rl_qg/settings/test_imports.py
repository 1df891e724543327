"""Code of other packages in a study file is found, named and refused before it is imported."""

import logging
import sys
from pathlib import Path

import pytest
import yaml

import rewards
from rewards.loading import OWN_CODE_ONLY
from rl_qg.commands.studies import study
from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import check_imports, foreign_imports

FORMS = [
    "generators: {mine: {reward._target_: evil.module.Reward}}",
    "generators: {mine: {reward: {_target_: evil.module.Reward}}}",
    "generators: {mine: [reward._target_=evil.module.Reward]}",
    "settings: ['reward=weighted', 'reward.parts={a: {metric: evil.module.Reward}}']",
    "settings: {reward.parts: '{a:{metric:evil.module.Reward,weight:2}}'}",
    "filters: {mine: {filters.own.kind: evil.module.Filter}}",
    "filters: {mine: ['filters.own={_target_: \"evil.module.Filter\"}']}",
    "generate: [rerank=evil.module.Reward]",
    "settings: ['evaluate.metrics=[evil.module.Reward]']",
    "generate: ['+generate.rerank={metric: evil.module.Reward}']",
]


@pytest.mark.parametrize("text", FORMS)
def test_every_way_to_name_a_class_is_found(text: str) -> None:
    ((_, path),) = foreign_imports(yaml.safe_load(text))
    assert path.startswith("evil.module.")


@pytest.mark.parametrize(
    "text",
    [
        "settings: [reward=qrelscore, 'reward.parts={a: {metric: bleu4}}', qa.model.path=runs/a.b/qa]",
        "generators: {mine: {reward._target_: rewards.relevance.reader.ReaderScore}}",
        "filters: {mine: {filters.own._target_: rl_qg.augmentation.row_filters.Length}}",
        "generate: [rerank=qrelscore]",
    ],
)
def test_what_the_package_has_is_no_import_of_others(text: str) -> None:
    assert list(foreign_imports(yaml.safe_load(text))) == []


def test_imports_are_refused_with_the_file_of_their_code_and_logged_where_they_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "__init__.py").write_text("raise RuntimeError('it was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    content = yaml.safe_load(FORMS[0])
    with pytest.raises(InputError, match=r"evil\.module\.Reward \(.*evil/__init__\.py\), named in generators\.mine\."):
        check_imports(content, Path("study.yaml"), allowed=False)
    with caplog.at_level(logging.INFO):
        check_imports(content, Path("study.yaml"), allowed=True)
    assert "study.yaml: imports evil.module.Reward" in caplog.text
    assert "evil" not in sys.modules


def test_the_command_takes_the_permission_from_its_own_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(FORMS[0])
    with pytest.raises(InputError, match="if you trust it, add --allow-imports"):
        study([str(file)])
    with pytest.raises(InputError, match="has no value"):  # it is read on, and lacks what a study needs
        study([str(file), "--allow-imports"])


def test_a_module_that_cannot_be_looked_up_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"__main__\.Reward \(.*\), named in"):
        check_imports({"reward._target_": "__main__.Reward"}, tmp_path, allowed=False)
    ((_, path),) = foreign_imports({"reward._target_": "évil.Reward"})
    assert path == "évil.Reward"


def test_a_process_that_may_import_nothing_else_loads_what_the_package_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN_CODE_ONLY, "1")
    assert rewards.load("bleu4").name == rewards.load("rewards.overlap.bleu.Bleu", order=4).name
    parts = {"tests.toy_metrics.WordCount": {}}  # a label that is a path
    for build in (
        lambda: rewards.load("weighted", parts=parts),
        lambda: rewards.load("rewards.loading.import_module"),
    ):
        with pytest.raises(rewards.MetricInputError, match="if you trust it, add --allow-imports"):
            build()
