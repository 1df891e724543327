"""`part=i/n` and `rl-qg merge`: the same bytes for every n, and those of one run where nothing depends on batches."""

import json
import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.augmentation.augment import augment
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.commands.generation import answers, merge
from rl_qg.data.formats import parquet_rows
from rl_qg.data.layouts import rows as stored_rows
from rl_qg.data.parquet import write_rows
from rl_qg.data.parts import DataPart, read_parts
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import read_examples
from rl_qg.generation.generate import Reranker, generate
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.runtime.resumable_lines import note_path
from rl_qg.scoring.score_file import score_file
from rl_qg.settings import AugmentSettings, GenerateSettings
from tests.properties.mutations import OF_VALUES, mutate
from tests.questions import example, record, write_questions
from tests.tiny_models import tiny_bart, word_tokenizer
from tests.toy_scores import Length

WORDS = " ".join(f"w{k}" for k in range(20))
PASSAGES = [" ".join(f"w{(k + j) % 20}" for j in range(3 + k % 9)) for k in range(24)]
EXAMPLES = [example(text, text.split()[1], "", id=f"e{k}") for k, text in enumerate(PASSAGES)]


class Sum:
    """A reward whose values do not depend on the batch; NaN for every tenth question."""

    signature = "sum"

    def score(self, questions: Any, contexts: Any, *, answers: Any = None, references: Any = None) -> Any:
        lengths = [len(text) for text in questions]
        scores = [float("nan") if n % 10 == 9 else n / len(c) for n, c in zip(lengths, contexts, strict=True)]
        return SimpleNamespace(scores=scores, parts={"length": lengths})


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, without the parts; paths in them without the folder."""
    files = (path for path in folder.iterdir() if ".part-" not in path.name)
    return {path.name: path.read_bytes().replace(str(folder).encode(), b"DIR") for path in files}


def merged(folder: Path, name: str, of: int) -> dict[str, bytes]:
    parts = [str(DataPart(number, of).path(folder / name)) for number in range(1, of + 1)]
    merge([*parts, f"output={folder / name}"])
    return contents(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    def new(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    return new


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model")
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_answers(folder: Any, tmp_path: Path, ending: str) -> None:
    texts = [f"House {k} was built in {1900 + k} by Anna Berg." + " It is old." * (k % 3) for k in range(30)]
    (tmp_path / "in.txt").write_text("\n".join([*texts, "and so it is", texts[0]]))
    settings = compose("answers", [f"input={tmp_path / 'in.txt'}", "batch_size=4"])

    def run(place: Path, part: str | None = None) -> None:
        options = replace(settings.answers, output=str(place / f"a.{ending}"))
        answers(replace(settings, answers=options, part=part))

    run(one := folder("one"))
    for of in (1, 2, 7, 64):
        place = folder(f"of{of}")
        for number in range(1, of + 1):
            run(place, f"{number}/{of}")
        assert merged(place, f"a.{ending}", of) == contents(one)
    assert read_json(one / "a.report.json")["passages"]["repeated"] == 1
    run(place)  # one run takes the merged file as its own
    assert contents(place) == contents(one)
    (place / "a.report.json").unlink()  # as after a kill
    run(place)
    assert contents(place) == contents(one)


@pytest.mark.parametrize(
    ("sampled", "counts", "ending"), [(False, (1, 2, 7), "jsonl"), (True, (1, 3), "jsonl"), (False, (1, 7), "parquet")]
)
def test_questions(model: str, folder: Any, sampled: bool, counts: tuple[int, ...], ending: str) -> None:
    settings = GenerateSettings(num_beams=3, num_samples=3, max_new_tokens=5, batch_size=3, do_sample=sampled)

    def run(place: Path, part: DataPart | None = None, seed: int = 3) -> int:
        output, state = place / f"q.{ending}", PartialState(cpu=True)
        return generate(model, EXAMPLES, output, settings=settings, seed=seed, state=state, part=part)

    one = folder("one")
    assert run(one) == 72 and run(one) == 72
    found = {}
    for of in counts:
        place = folder(f"of{of}")
        assert sum(run(place, DataPart(number, of)) for number in range(1, of + 1)) == 72
        found[of] = merged(place, f"q.{ending}", of)
        assert found[of] == found[1]
    if ending == "jsonl":  # the note of a Parquet file has its hash
        assert found[1]["q.jsonl.settings.json"] == contents(one)["q.jsonl.settings.json"]
    mine, whole = ([row for *_, row in stored_rows(path / f"q.{ending}")] for path in (place, one))
    assert mine == [{**row, "logprob": pytest.approx(row["logprob"], abs=1e-4)} for row in whole]
    place = folder("others")
    run(place, DataPart(1, 2))
    run(place, DataPart(2, 2), seed=4)
    with pytest.raises(InputError, match=r"q\.part-2-of-2.*made otherwise than .*q\.part-1-of-2.*\(seed: 3 -> 4\)"):
        merged(place, f"q.{ending}", 2)
    assert not (place / f"q.{ending}").exists()


def test_reranked_questions_note_how_many_rewards_failed(model: str, folder: Any) -> None:
    settings, state = GenerateSettings(num_beams=4, keep=2, max_new_tokens=5, batch_size=3), PartialState(cpu=True)

    def reward(examples: Any, questions: Any) -> list[float]:
        return [float(len(text)) if len(text) % 3 else float("nan") for text in questions]

    reranker, found = Reranker("toy", reward), []
    for of in (0, 1, 5):
        place = folder(f"of{of}")
        for part in [DataPart(number, of) for number in range(1, of + 1)] or [None]:
            options: Any = {"reranker": reranker, "part": part, "state": state}
            generate(model, EXAMPLES, place / "q.jsonl", settings=settings, seed=0, **options)
        found.append(merged(place, "q.jsonl", of) if of else contents(place))
    assert json.loads(found[0]["q.jsonl.settings.json"])["rewards_failed"] > 0
    assert found[0]["q.jsonl.settings.json"] == found[1]["q.jsonl.settings.json"]
    assert found[1] == found[2]


@pytest.mark.parametrize(("reward", "ending"), [(Sum, "jsonl"), (Length, "jsonl"), (Sum, "parquet")])
def test_scores(folder: Any, tmp_path: Path, reward: Any, ending: str) -> None:
    """Those of `Length` tell with which rows a row was scored, so that they differ from one run, which has others."""
    source = tmp_path / "in.jsonl"
    lines = [{"row": "own", "question": "q" * k, "context": f"text {k % 17}"} for k in range(1, 60)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(place: Path, part: DataPart | None = None) -> None:
        table, state = QuestionTable(source), PartialState(cpu=True)
        score_file(reward(), table, place / f"s.{ending}", batch_size=4, state=state, part=part)

    run(one := folder("one"))
    before = contents(one)
    run(one)
    assert contents(one) == before
    found = {}
    for of in (1, 2, 7, 64):
        place = folder(f"of{of}")
        for number in range(1, of + 1):
            run(place, DataPart(number, of))
        found[of] = merged(place, f"s.{ending}", of)
        assert found[of] == found[1]
    assert (found[1] == contents(one)) == (reward is Sum)
    (summary,) = (found[1][name] for name in found[1] if name.endswith(".summary.json"))
    assert json.loads(summary)["rows"] == 59


def test_scores_of_a_part_do_not_depend_on_its_numbers(folder: Any, tmp_path: Path) -> None:
    rows = [{"row of all parts": 30 - k, "question": "q" * k, "context": f"text {k % 17}"} for k in range(1, 30)]
    write_rows(tmp_path / "in.parquet", lambda: rows)

    def run(place: Path, part: DataPart | None = None) -> None:
        table, state = QuestionTable(tmp_path / "in.parquet"), PartialState(cpu=True)
        score_file(Sum(), table, place / "s.parquet", batch_size=4, state=state, part=part)

    run(one := folder("one"))
    for number in (1, 2):
        run(two := one.with_name("two") if number > 1 else folder("two"), DataPart(number, 2))
    assert merged(two, "s.parquet", 2) == contents(one)
    found = [row for _, _, row in parquet_rows(one / "s.parquet")]
    assert [row["question"] for row in found] == [row["question"] for row in rows]
    assert [*found[0]] == ["question", "context", "score", "parts"]


@pytest.mark.parametrize(("ending", "part"), [("jsonl", "1/2"), ("parquet", "1/2"), ("parquet", "")])
@pytest.mark.parametrize("whole", [True, False])
def test_scores_of_other_rows_are_not_taken_for_those_of_a_file(
    tmp_path: Path, ending: str, part: str, whole: bool
) -> None:
    """Rows of the same passages in the same places: neither numbers nor passages tell that the input is another."""
    number = DataPart.parse(part) if part else None
    for name in ("a", "b"):
        lines = [{"question": name * k, "context": f"text {k % 17}"} for k in range(1, 30)]
        write_questions(tmp_path / f"{name}.jsonl", lines)

    def run(name: str, reward: Any) -> None:
        table, state = QuestionTable(tmp_path / name), PartialState(cpu=True)
        score_file(reward, table, tmp_path / f"s.{ending}", batch_size=4, state=state, part=number)

    calls: list[int] = []

    class Killed(Sum):
        def score(self, questions: Any, *texts: Any, **more: Any) -> Any:
            calls.append(len(questions))
            if not whole and len(calls) == 2:
                raise KeyboardInterrupt
            return super().score(questions, *texts, **more)

    with suppress(KeyboardInterrupt):
        run("a.jsonl", Killed())
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"s\..*: holds scores of .*a\.jsonl; name another file or delete it"):
        run("b.jsonl", Sum())
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == kept
    (tmp_path / "a.jsonl").rename(tmp_path / "moved.jsonl")
    run("moved.jsonl", Sum())


def test_parquet_questions_are_scored_and_augmented_as_json_lines_are(folder: Any, tmp_path: Path) -> None:
    rows = [record(f"Where did Ada meet Bob {k % 9} times?", id=f"q{k}", reward=None) for k in range(30)]
    write_questions(tmp_path / "q.jsonl", rows)
    write_rows(tmp_path / "q.parquet", lambda: rows)
    found = []
    for ending in ("jsonl", "parquet"):
        place, state = folder(ending), PartialState(cpu=True)
        settings = AugmentSettings(num_samples=5, filters={"duplicates": {}})
        augment(tmp_path / f"q.{ending}", [], place / "a.jsonl", settings=settings)
        table = QuestionTable(tmp_path / f"q.{ending}")
        score_file(Sum(), table, place / "s.jsonl", batch_size=4, state=state)
        found.append([(place / name).read_bytes() for name in ("a.jsonl", "s.jsonl")])
    assert found[0] == found[1] and found[0][0].count(b"\n") == 5
    mixed = [{**rows[0], "reward": 1}, {**rows[1], "reward": "high"}]
    table = QuestionTable(write_questions(tmp_path / "mixed.jsonl", mixed))
    with pytest.raises(InputError, match=r"Parquet has one type for each column, and 'reward' has values of several"):
        score_file(None, table, place / "t.parquet", batch_size=4, state=state)  # type: ignore[arg-type]
    (half := tmp_path / "half.jsonl").write_text(json.dumps({**rows[0], "\ud800": "a\udfff"}))
    score_file(Sum(), QuestionTable(half), place / "h.parquet", batch_size=4, state=state)
    assert [row["?"] for _, _, row in stored_rows(place / "h.parquet")] == ["a?"]


def test_an_augmented_set_is_also_written_in_the_format_of_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "Ada met Bob in London. They left London."
    again = {"context": text, "answer_start": text.rindex("London")}
    write_questions(tmp_path / "q.jsonl", [record(f"Where did they meet {k}?", id=f"q{k}", **again) for k in range(9)])
    keys = ["questions=q.jsonl", "gold=", "filters=none", "num_samples=5", "format=squad2"]
    for _ in range(2):  # a second time it is the same
        run_command("augment", [*keys, "output=a.json"])
    made = read_examples(tmp_path / "a.squad2.json", role="train").examples
    assert made == read_examples(tmp_path / "a.json", role="train").examples and len(made) == 5
    assert {one.answers[0].start for one in made} == {text.rindex("London")}  # not the first place of that text
    for flat in ("c.jsonl", "d.parquet"):
        run_command("augment", [*keys, f"output={flat}"])
        assert Path(flat[0] + ".squad2.json").read_bytes() == Path("a.squad2.json").read_bytes()
    for part in ("1/2", "2/2"):
        run_command("augment", [*keys, "output=b.json", f"part={part}"])
    assert not (tmp_path / "b.squad2.json").exists()
    merge([*map(str, tmp_path.glob("b.part-?-of-2.jsonl")), "output=b.json"])
    assert (tmp_path / "b.squad2.json").read_bytes() == (tmp_path / "a.squad2.json").read_bytes()
    with pytest.raises(InputError, match=r"a.squad2.json: exists, with other contents; delete it"):
        run_command("augment", [*keys, "num_samples=4", "output=a.json"])
    (tmp_path / "e.squad2.json").mkdir()
    with pytest.raises(InputError, match=r"e.squad2.json"):
        run_command("augment", [*keys, "output=e.json"])
    assert not Path("e.json").exists()  # before the augmentation, and not after hours of filtering


def test_rows_without_a_context_are_spread_by_their_questions(folder: Any, tmp_path: Path) -> None:
    source, place = tmp_path / "in.jsonl", folder("parts")
    source.write_text("".join(json.dumps({"question": f"q {k}?"}) + "\n" for k in range(40)))

    class Needless(Sum):
        needs = ()

        def score(self, questions: Any, contexts: Any = None, **columns: Any) -> Any:
            return SimpleNamespace(scores=[1.0] * len(questions), parts={})

    for number in (1, 2):
        table, part = QuestionTable(source), DataPart(number, 2)
        score_file(Needless(), table, place / "s.jsonl", batch_size=4, state=PartialState(cpu=True), part=part)
    rows = [read_json(place / f"s.part-{number}-of-2.jsonl.settings.json")["whole"]["rows"] for number in (1, 2)]
    assert sum(rows) == 40 and min(rows) > 5
    assert len(merged(place, "s.jsonl", 2)["s.jsonl"].splitlines()) == 40


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_no_changed_note_of_a_part_is_taken(tmp_path: Path, ending: str) -> None:
    """Each value of the note, changed in turn: the merge and the part's own command refuse it, or make the same."""
    (tmp_path / "in.txt").write_text("\n".join(f"House {k} was built in {1900 + k} by Ann." for k in range(6)))
    words = [f"{tmp_path}/in.txt", f"output={tmp_path}/a.{ending}"]
    parts = [DataPart(number, 2).path(tmp_path / f"a.{ending}") for number in (1, 2)]
    for number in (1, 2):
        run_command("answers", [*words, f"part={number}/2"])
    made, note = parts[0].read_bytes(), note_path(parts[0])
    valid = note.read_bytes()
    for kind in OF_VALUES:
        for share in range(40):
            note.write_bytes(valid)
            mutate(note, kind, share / 40)
            changed, unchanged = read_json(note), json.loads(valid)
            if isinstance(changed.get("whole"), dict):
                changed["whole"].setdefault("note", unchanged["whole"]["note"])  # earlier versions had none
            if changed == unchanged:
                continue
            with pytest.raises(InputError, match=r"a\.part-1-of-2"):
                read_parts(parts, tmp_path / f"a.{ending}")
            if kind != "empty list" or share % 8:
                continue  # a command takes half a second
            try:
                run_command("answers", [*words, "part=1/2"])
            except InputError as error:
                assert note.name in str(error)
            assert parts[0].read_bytes() == made


def test_parts_that_are_asked_for_in_a_wrong_place_are_refused() -> None:
    with pytest.raises(InputError, match=r"part=1/2: is for answers, generate, augment, score; leave it out"):
        compose("train", ["part=1/2"])
    with pytest.raises(InputError, match=r"part=3/2 is no part: give i/n"):
        compose("generate", ["part=3/2"])
    assert compose("generate", ["part=2/2"]).part == "2/2"
    for arguments in ([], ["a.jsonl"], ["output=b.jsonl"], ["a.jsonl", "output="], ["--all", "output=b.jsonl"]):
        with pytest.raises(InputError, match=r"give the parts and one output=FILE, such as rl-qg merge questions"):
            merge(arguments)


@pytest.mark.slow
def test_parts_and_merges_that_are_killed_at_any_time_end_in_the_same_bytes(home: Any, folder: Any) -> None:
    """The real commands, each killed once at a time that a seed draws, if it has not ended before."""
    chance, kills, found = random.Random(4), 0, []
    texts = "\n".join(f"House {k} was built in {1900 + k} by Anna Berg." for k in range(1_500))
    for of in (1, 3):
        (place := folder(f"of{of}")).joinpath("in.txt").write_text(texts)
        names = [f"a.part-{number}-of-{of}.jsonl" for number in range(1, of + 1)]
        commands = [("answers", "in.txt", "batch_size=4", f"part={number}/{of}") for number in range(1, of + 1)]
        for words in [*commands, ("merge", *names)]:
            command = [sys.executable, "-m", "rl_qg", *words, "output=a.jsonl"]
            if of > 1:
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run(command, cwd=place, env=home, capture_output=True, timeout=chance.uniform(3, 8))
                    kills -= 1
                kills += 1
            subprocess.run(command, cwd=place, env=home, capture_output=True, check=True)
        found.append(contents(place))
    assert kills > 1
    assert found[0] == found[1]


def test_intervals_of_merged_scores_end_at_the_bounds_too(folder: Any, tmp_path: Path) -> None:
    class Share(Sum):
        bounds = (0.0, 1.0)

        def score(self, questions: Any, contexts: Any, **columns: Any) -> Any:
            return SimpleNamespace(scores=[0.4 if "2" in question else 1.0 for question in questions], parts={})

    source = write_questions(tmp_path / "q.jsonl", [record(f"q {k}?", id=str(k), context=f"c {k}") for k in range(5)])
    whole, parts = folder("whole"), folder("parts")
    score_file(Share(), QuestionTable(source), whole / "s.jsonl", batch_size=4, state=PartialState(cpu=True))
    for number in (1, 2):
        table, part = QuestionTable(source), DataPart(number, 2)
        score_file(Share(), table, parts / "s.jsonl", batch_size=4, state=PartialState(cpu=True), part=part)
    assert merged(parts, "s.jsonl", 2) == contents(whole)
    summary = read_json(whole / "s.summary.json")
    assert summary["score"]["high"] == 1.0 and "bounds" not in summary
