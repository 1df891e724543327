"""The data card, and the upload to the Hub: it makes a data set, and a failure loses nothing."""

from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from huggingface_hub import HfApi

import rl_qg.augmentation.augment
from rl_qg.augmentation.augment import augment
from rl_qg.augmentation.data_card import TABLE, card_path, publish
from rl_qg.data.examples import Answer, QAExample
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.settings import AugmentSettings
from tests.hub_server import hub_server
from tests.questions import PASSAGE, record, write_questions

GOLD = [QAExample("g1", "Ada", PASSAGE, "Who met Charles?", (Answer("Ada Lovelace", 0),))]
LINES = [record("Where was it?"), record("In which city did they meet?", candidate=1)]
FILTERS = {"length": {"min_words": 4}, "answer_in_question": None}


class Hub:
    """A fake Hub that stores uploads in a folder, or raises `error`."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        self.folder, self.error = folder, error
        self.created: list[Any] = []

    def create_repo(self, repository: str, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.created.append((repository, options))

    def create_commit(self, repository: str, operations: list[Any], **options: Any) -> None:
        assert options["repo_type"] == "dataset"
        for one in operations:
            path = self.folder / one.path_in_repo
            path.parent.mkdir(parents=True, exist_ok=True)
            with one.as_file() as stream:
                path.write_bytes(stream.read())


def run(folder: Path, name: str, gold: Any = GOLD, **settings: Any) -> dict[str, Any]:
    path = write_questions(folder / "q.jsonl", LINES)
    return augment(path, gold, folder / name, settings=AugmentSettings(**{"filters": FILTERS, **settings}))


def test_the_card_contains_what_the_report_contains(tmp_path: Path) -> None:
    write_json(tmp_path / "q.jsonl.settings.json", {"model": "abc123", "num_beams": 8, "seed": 13})
    report = run(tmp_path, "a.json", seed=4)
    text = card_path(tmp_path / "a.json").read_text(encoding="utf-8")
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "other"
    for part in (
        *("1 human and 1 generated", "- model: `abc123`", "- num_beams: `8`", "| candidates | 2 |", "seed 4"),
        *(
            "| dropped: too short | 1 |",
            "| kept | 1 |",
            "A uniform sample of the kept candidates: 1 of 1, 90,000 requested",
        ),
        *(report["output"]["sha256"], report["inputs"]["questions"]["sha256"], report["inputs"]["gold"]["sha256"]),
        *("No model scored", "keep the licence of their source"),
    ):
        assert part in body, part
    options = yaml.safe_load(body.split("```yaml\n")[1].split("```")[0])
    assert options == {"length": {"min_words": 4}}
    assert "answer_in_question" not in text


def test_a_card_without_gold_and_of_unknown_origin(tmp_path: Path) -> None:
    run(tmp_path, "a.json", gold=[], sampling="diverse")
    text = card_path(tmp_path / "a.json").read_text(encoding="utf-8")
    assert "None: all questions are generated." in text
    assert "No file records which generator wrote them: name it here" in text
    assert "Maximal marginal relevance by `logprob`, with weight 0.5" in text


@pytest.mark.parametrize("name", ["a.json", "a.parquet"])
def test_an_upload_is_a_data_set_with_its_card(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(rl_qg.augmentation.augment, "publish", lambda *given: publish(*given, api=hub))
    run(tmp_path, name, hub_dataset="me/name")
    assert hub.created == [("me/name", {"repo_type": "dataset", "exist_ok": True})]
    loaded = datasets.load_dataset(str(tmp_path / "hub"), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded["id"][:] == ["g1", "synthetic-q-1"]
    assert loaded["source"][:] == ["gold", "synthetic"]
    assert loaded[1]["answers"] == {"text": ["London"], "answer_start": [PASSAGE.index("London")]}
    assert (tmp_path / "hub" / "README.md").read_bytes() == card_path(tmp_path / name).read_bytes()


def test_the_table_and_its_card_arrive_whole(tmp_path: Path) -> None:
    """Over HTTP, by the library's client, to a stand-in for the Hub."""
    run(tmp_path, "a.parquet")
    card, table = card_path(tmp_path / "a.parquet"), tmp_path / "a.parquet"
    with hub_server() as hub:
        publish(card, table, "me/name", api=HfApi(endpoint=hub.address, token="hf_secret"))
    assert hub.files == {"datasets/me/name": {"README.md": card.read_bytes(), TABLE: table.read_bytes()}}


def test_an_unreachable_hub_is_one_warning_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(tmp_path, "a.parquet")
    hub = Hub(tmp_path, ConnectionError("no route\nto host"))
    publish(card_path(tmp_path / "a.parquet"), tmp_path / "a.parquet", "me/name", api=hub)
    (line,) = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert line.startswith("augment.hub_dataset=me/name: not uploaded (no route); the local files are complete")
    assert "\n" not in line


def test_an_invalid_repository_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"augment\.hub_dataset=a/b/c: not a name of a Hub repository; write it as me/"
    ):
        run(tmp_path, "a.parquet", hub_dataset="a/b/c")
    assert not (tmp_path / "a.parquet").exists()
