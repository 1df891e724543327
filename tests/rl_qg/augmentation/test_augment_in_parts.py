"""Augmentation in parts and merged: what one run writes, for any filters and sample and any number of parts."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import BertModel

from rewards.embedding.token_embeddings import SentenceEncoder
from rewards.frozen import FrozenModel
from rl_qg.augmentation.augment import augment
from rl_qg.augmentation.in_parts import augment_part, merge_augmented
from rl_qg.data.examples import write_squad
from rl_qg.data.parts import DataPart, read_parts
from rl_qg.data.streaming import stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import AugmentSettings
from tests.questions import example, record, write_questions
from tests.tiny_models import piece_tokenizer, save, tiny

PLACES = [f"Ada met Bob {k} times in London{' and in Rome' * (k % 3)}." for k in range(25)]
WORDS = "what where when who did Ada meet Bob in the town of London again".split()


class Words:
    """A reward that fails on some questions; `company` adds with how many questions one is scored."""

    signature = "words"

    def __init__(self, company: bool) -> None:
        self.company, self.calls = company, 0

    def score(self, questions: Any, contexts: Any, *, answers: Any = None, references: Any = None) -> Any:
        self.calls += 1
        scores = [len(text) % 7 + self.company * len(questions) / 100 for text in questions]
        return SimpleNamespace(scores=[score if score >= 1 else float("nan") for score in scores], parts={})


FAITHFUL: dict[str, Any] = {
    "length": {"min_words": 3},
    "answer_in_question": {},
    "gold_duplicates": {},
    "duplicates": {},
}
REWARD: dict[str, Any] = {"reward": {"metric": {"_target_": "words"}, "batch_size": 3}}
CASES: dict[str, dict[str, Any]] = {
    "the paper": {"filters": FAITHFUL, "num_samples": 40},
    "the best": {"filters": FAITHFUL | {"cap": {"per_answer": 2, "per_context": 3}}, "sampling": "reward"},
    "few of the best": {"filters": {}, "sampling": "reward", "num_samples": 7},
    "diverse": {"filters": FAITHFUL, "sampling": "diverse", "num_samples": 25},
    "measured": {"filters": REWARD | {"near_duplicates": {"threshold": 0.6, "by": "reward"}}},
    "in one passage": {"filters": {"reward": {**REWARD["reward"], "top_fraction": 0.5, "min": 2.0}}},
    "by MinHash": {"filters": {"near_duplicates": {"exact_up_to": 3, "threshold": 0.5}}, "num_samples": 50},
    "two measures": {
        "filters": {**REWARD, "more": {"kind": "reward", "metric": {"_target_": "words", "x": 1}, "min": 3.0}}
    },
    "near all": {
        "filters": FAITHFUL | {"near_duplicates": {"within": "all", "threshold": 0.7}, "cap": {"per_context": 2}}
    },
    "types": {"filters": FAITHFUL | {"question_types": {"max_share": 0.4, "by": "logprob"}}, "num_samples": 9},
    "types by reward": {
        "filters": REWARD | {"question_types": {"max_share": 0.5, "by": "reward"}},
        "sampling": "reward",
    },
    "other words": {"filters": {"well_formed": {"language": "xx", "question_mark": False}}},
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    chance = random.Random(3)
    rows = []
    for k in range(160):
        place, answer = chance.choice(PLACES), chance.choice(["London", "Ada"])
        question = " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 9)))
        more = {"logprob": -float(chance.randrange(5)), "own": [k, None]}
        rows.append(record(question, answer, place, id=f"é{k // 2}", candidate=k % 2, **more))
    write_questions(tmp_path / "q.jsonl", rows)
    gold = [example(place, "Ada", rows[k]["question"] or "who?", id=f"g{k}") for k, place in enumerate(PLACES[:9])]
    write_squad(tmp_path / "gold.json", gold)
    return tmp_path


def settings_of(folder: Path, case: Mapping[str, Any], ending: str) -> AugmentSettings:
    names = {"questions": str(folder / "q.jsonl"), "gold": str(folder / "gold.json"), "output": ""}
    given: dict[str, Any] = {"sample_by": "logprob", **case, **names}
    return AugmentSettings(**given)


def run(
    folder: Path, output: Path, settings: AugmentSettings, part: DataPart | None = None, company: bool = False
) -> Any:
    gold = stream_examples(settings.gold, role="train")
    options: Any = {"settings": settings, "load_metric": lambda options: Words(company)}
    if part is None:
        return augment(folder / "q.jsonl", gold, output, **options)
    return augment_part(folder / "q.jsonl", gold, output, part, hotpotqa_context="facts", **options)


def merged(folder: Path, output: Path, settings: AugmentSettings, of: int, company: bool = False) -> dict[str, Any]:
    parts = [DataPart(number, of) for number in range(1, of + 1)]
    for part in parts:
        run(folder, output, settings, part, company)
    report = merge_augmented(read_parts([part.path(output) for part in parts], output), output)
    assert report == read_json(output.with_name(f"{output.stem}.report.json"))
    return contents(output)


def contents(output: Path) -> dict[str, Any]:
    """Bytes of the set, its card and its report, without files and means of measures and the path of the output."""
    report = read_json(output.with_name(f"{output.stem}.report.json"))
    assert report["output"].pop("path") == str(output)
    for measure in report["measures"].values():
        del measure["file"], measure["mean"]
    card = output.with_name(f"{output.stem}.card.md").read_text().replace(output.name, "NAME")
    return {"set": output.read_bytes(), "card": card, "report": report}


@pytest.mark.parametrize("ending", ["json", "jsonl"])
@pytest.mark.parametrize("case", CASES)
def test_parts_are_what_one_run_is(data: Path, case: str, ending: str) -> None:
    settings = settings_of(data, CASES[case], ending)
    run(data, data / f"one.{ending}", settings)
    one = contents(data / f"one.{ending}")
    assert 0 < one["report"]["sampled"] < 160
    assert one["report"]["notes"] or case not in ("other words", "by MinHash")
    for of in (1, 2, 7) if ending == "json" else (64,):
        assert merged(data, data / f"of{of}.{ending}", settings, of) == one


def test_vectors_of_questions_do_not_depend_on_the_parts(data: Path) -> None:
    """The threshold is the cosine of two questions of a passage, where the last digits of vectors decide."""
    tokenizer = piece_tokenizer([word.lower() for word in WORDS], lowercase=True)
    path = save(data / "encoder", tokenizer, tiny(BertModel, len(tokenizer)))
    model = FrozenModel(path, "encoder", device="cpu", dtype="float32")
    lines = [json.loads(line) for line in (data / "q.jsonl").read_text().splitlines()]
    asked = [line["question"] for line in lines if line["context"] == lines[0]["context"]]
    vectors = SentenceEncoder(model, batch_size=32, name="x").vectors(asked)
    cosines = (vectors @ vectors.T).flatten().sort().values
    filters = {"same_meaning": {"encoder": str(path), "threshold": float(cosines[len(cosines) * 2 // 3])}}
    settings = settings_of(data, {"filters": filters}, "json")
    run(data, data / "one.json", settings)
    one = contents(data / "one.json")
    assert 0 < one["report"]["kept"] < 160
    for of in (1, 2, 20):
        assert merged(data, data / f"of{of}.json", settings, of) == one


def test_measures_that_depend_on_batches_do_not_depend_on_the_number_of_parts(data: Path) -> None:
    settings = settings_of(data, CASES["measured"], "jsonl")
    found = [merged(data, data / f"of{of}.jsonl", settings, of, company=True) for of in (1, 3, 20)]
    assert found[0] == found[1] == found[2]
    companies = {json.loads(line)["reward"] for line in found[0]["set"].splitlines()} - {None}
    assert len({round(value % 1, 4) for value in companies}) > 1  # batches were of several sizes


def test_a_killed_part_measures_what_is_missing_and_ends_in_the_same_bytes(data: Path) -> None:
    settings, part = settings_of(data, CASES["measured"], "json"), DataPart(1, 1)
    run(data, data / "a.json", settings, part, company=True)
    path, (measures,) = part.path(data / "a.json"), data.glob("q.reward-*.jsonl")
    whole, numbers, note = path.read_bytes(), measures.read_bytes(), path.with_name(f"{path.name}.settings.json")
    for cut in range(0, len(numbers), 997):
        measures.write_bytes(numbers[:cut])
        path.unlink()
        run(data, data / "a.json", settings, part, company=True)
        assert (path.read_bytes(), measures.read_bytes()) == (whole, numbers)
    path.write_bytes(whole[:-20])
    run(data, data / "a.json", settings, part, company=True)
    assert path.read_bytes() == whole
    before = note.stat().st_mtime_ns
    run(data, data / "a.json", settings, part)
    assert note.stat().st_mtime_ns == before  # what is complete is left alone


def test_what_parts_cannot_do_is_refused_before_any_work(data: Path) -> None:
    case = {"filters": {"question_types": {"max_share": 0.4}, **REWARD}}
    with pytest.raises(
        InputError,
        match=r"part=1/2: augment\.filters\.reward measures what augment\.filters\.question_types has kept of all "
        r"passages, which no part knows; put it first, or augment without part=",
    ):
        run(data, data / "a.json", settings_of(data, case, "json"), DataPart(1, 2))
    assert not [*data.glob("*part*")]


def test_parts_of_other_settings_inputs_or_commands_are_refused(data: Path) -> None:
    settings, output = settings_of(data, CASES["the paper"], "json"), data / "a.json"
    parts = [DataPart(number, 2) for number in (1, 2)]
    paths = [part.path(output) for part in parts]
    other = settings_of(data, CASES["the paper"] | {"num_samples": 41}, "json")
    run(data, output, settings, parts[0])
    run(data, output, other, parts[1])
    with pytest.raises(InputError, match=r"a\.part-2.*made otherwise .*\(settings\.num_samples: 40 -> 41\)"):
        read_parts(paths, output)
    with pytest.raises(InputError, match=r"a\.part-2.* holds candidates made with other settings"):
        run(data, output, settings, parts[1])
    paths[1].unlink()
    run(data, output, settings, parts[1])
    both = read_parts(paths, output)
    questions, gold = (data / "q.jsonl").read_bytes(), (data / "gold.json").read_bytes()
    (data / "q.jsonl").write_bytes(questions + b"\n")
    with pytest.raises(InputError, match=r"q\.jsonl: has changed since the parts were made; put the old one back"):
        merge_augmented(both, output)
    (data / "q.jsonl").write_bytes(questions)
    write_json(data / "gold.json", {"data": []})
    with pytest.raises(InputError, match=r"gold\.json"):
        merge_augmented(both, output)
    assert not output.exists()
    (data / "gold.json").write_bytes(gold)
    merge_augmented(both, output)


def test_a_questions_file_that_has_moved_is_one_line(data: Path) -> None:
    settings, output = settings_of(data, CASES["the paper"], "json"), data / "a.json"
    run(data, output, settings, DataPart(1, 1))
    parts = read_parts([DataPart(1, 1).path(output)], output)
    (data / "q.jsonl").rename(data / "moved.jsonl")
    with pytest.raises(InputError, match=r"q\.jsonl: no such file: check the path"):
        merge_augmented(parts, output)


def test_half_a_surrogate_in_a_further_field_stops_no_part(data: Path) -> None:
    rows = [json.loads(line) | {"note": "\ud800"} for line in (data / "q.jsonl").read_text().splitlines()]
    (data / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = settings_of(data, CASES["the paper"], "jsonl")
    run(data, data / "whole.jsonl", settings)
    assert merged(data, data / "a.jsonl", settings, 2)["set"] == (data / "whole.jsonl").read_bytes()


def test_no_candidate_in_any_part_is_an_error_of_the_merge(data: Path) -> None:
    settings, output = settings_of(data, {"filters": {"length": {"min_words": 29}}}, "json"), data / "a.json"
    with pytest.raises(InputError, match=r"q\.jsonl: no candidate of 160 is kept \(too short "):
        merged(data, output, settings, 2)
    assert not output.exists()
