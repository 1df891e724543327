"""Questions that a generator samples: their kinds, the shares of these, and whether a reward tells them."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.oracle import VERDICTS
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.loading import load_generator
from rl_qg.generation.prompts import Prompt
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.separation import (
    RIGHT,
    SampledQuestions,
    check_reward,
    doubts,
    labelled,
    sampled_record,
    sampler,
    separation,
    write_separation,
)
from rl_qg.scoring.wrong_questions import wrong_questions
from rl_qg.stats.intervals import PassageDraws
from tests.questions import example
from tests.tiny_models import save, tiny_bart, word_tokenizer
from tests.toy_metrics import WordCount

FAUST = example("Faust is a play by Goethe.", "Goethe", "Who wrote the play Faust?", id="a")
PARIS = example("Paris lies on the Seine.", "Seine", "Which river runs through Paris?", id="b")
ORDINARY = [FAUST, PARIS]
QUESTIONS = {
    "a": ["Who wrote Faust?", "Who wrote Hamlet?", "Faust wrote?"],  # 3 words, 3, 2
    "b": ["Which river is in London?", "Which river runs by Rome today?", "Paris lies?"],  # 5 words, 6, 2
}
WORLD = list(synthetic_examples(15, seed=5))


class Stub:
    """A generator that asks what it is told to."""

    def candidates(self, examples: list[QAExample], count: int, **options: Any) -> list[list[Candidate]]:
        assert options == {"max_new_tokens": 9, "top_p": 1.0, "temperature": 0.5, "seed": 3}
        return [[Candidate(text, 0.0) for text in QUESTIONS[one.id][:count]] for one in examples]


class Agrees:
    """A reader that gives the answer to questions that begin with some words."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        if not self.words:
            raise ValueError("no words")
        return SimpleNamespace(scores=[float(text.startswith(self.words)) for text in questions])


def of_stub() -> Any:
    generator: Any = Stub()
    return sampler("stub", generator, 3, max_new_tokens=9, top_p=1.0, temperature=0.5, seed=3)


def kinds_of(sampled: SampledQuestions) -> list[list[str]]:
    rows, columns = next(iter(sampled.kinds.values())).shape
    return [
        [next(kind for kind, mask in sampled.kinds.items() if mask[row, column]) for column in range(columns)]
        for row in range(rows)
    ]


def test_shares_and_orders_are_those_of_a_count_by_hand() -> None:
    """The reward counts words. Of the first answer the right sample has 3: it ties with the unsupported name (0.5) and
    is above the ill-formed one. Of the second no sample is right, so the human question of 5 words stands in: a tie,
    and below 6 words (0.25), above 2.
    """
    record = separation(WordCount(), ORDINARY, sampler=of_stub())["sampled"]
    assert (record["model"], record["samples_per_answer"], record["failed"]) == ("stub", 3, 0)
    kinds = record["kinds"]
    assert {kind: found["share"] for kind, found in kinds.items()} == {
        "passes": pytest.approx(1 / 6),
        "ill_formed": pytest.approx(2 / 6),
        "unsupported_name": pytest.approx(3 / 6),
    }
    assert {kind: found["mean"] for kind, found in kinds.items()} == {
        "passes": 3.0,
        "ill_formed": 2.0,
        "unsupported_name": pytest.approx(14 / 3),
    }
    assert "auc" not in kinds["passes"] and record["beside"] == {}
    assert kinds["unsupported_name"]["auc"] == pytest.approx((0.5 + 0.25) / 2)
    assert kinds["ill_formed"]["auc"] == 1.0
    assert record["wrong"]["share"] == pytest.approx(5 / 6)
    assert record["wrong"]["auc"] == pytest.approx(((0.5 + 1) / 2 + (0.5 + 0 + 1) / 3) / 2)
    assert [record["wrong"][key] for key in ("answers", "human", "passages")] == [2, 1, 2]
    shown = {(sample["kind"], sample["wrong"]): sample["reward_wrong"] for sample in record["samples"]}
    assert shown[("unsupported_name", "Who wrote Hamlet?")] == 3.0 and ("passes", "Who wrote Faust?") not in shown


def test_without_a_generator_nothing_changes() -> None:
    plain = separation(WordCount(), ORDINARY)
    with_samples = separation(WordCount(), ORDINARY, sampler=of_stub())
    assert "sampled" not in plain and with_samples.pop("sampled") and with_samples == plain


def test_the_first_check_that_fails_is_the_kind() -> None:
    texts = [["Who wrote Faust?", "Who is in Hamlet?", "Hamlet wrote?", "", "What did he write?"]]
    plain = labelled("m", texts, [FAUST])
    assert kinds_of(plain) == [["passes", "unsupported_name", "ill_formed", "ill_formed", "passes"]]
    assert list(plain.kinds) == ["passes", "ill_formed", "unsupported_name"]
    read = labelled("m", texts, [FAUST], Agrees("Who", "Hamlet"))
    assert kinds_of(read) == [["passes", "unsupported_name", "ill_formed", "ill_formed", "not_answered"]]
    with pytest.raises(InputError, match="check for not_answered: the reward fails: ValueError: no words"):
        labelled("m", texts, [FAUST], Agrees())


def test_rules_of_english_are_for_english() -> None:
    german = example("Faust ist ein Drama von Goethe.", "Goethe", "Wer schrieb Faust?")
    other = replace(german, language="de")
    for item in (german, other, replace(german, language="de_DE")):
        assert kinds_of(labelled("m", [["Wer schrieb es?", "Wer schrieb es"]], [item])) == [["passes", "ill_formed"]]
    english = replace(german, question="Who wrote Faust?")
    assert kinds_of(labelled("m", [["Wer schrieb es?"]], [english])) == [["ill_formed"]]


def test_on_the_embedded_corpus_kinds_are_verdicts_that_people_agree_with() -> None:
    """The hand-checked sample of the oracle's own test; a reader is not asked."""
    lines = (Path(__file__).parents[1] / "data" / "oracle_sample.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    examples = {one.id: one for one in synthetic_examples(120, seed=0, prefix="validation")}
    examples |= {one.id: one for one in synthetic_examples(60, seed=7, prefix="fresh")}
    about = [examples[row["id"]] for row in rows]
    sampled = labelled("m", [[row["question"]] for row in rows], about, Agrees())
    assert tuple(sampled.kinds) == VERDICTS
    counted = Counter(row["verdict"] for row in rows)
    assert sum(abs(int(mask.sum()) - counted[kind]) for kind, mask in sampled.kinds.items()) <= 2
    assert abs(int(sampled.beside["unsupported"].sum()) - sum(row["unsupported"] for row in rows)) <= 2


def test_passages_of_both_sorts_have_the_kinds_of_both() -> None:
    sampled = labelled("m", [[WORLD[0].question], ["Who wrote Hamlet?"]], [WORLD[0], FAUST])
    assert kinds_of(sampled) == [["right"], ["unsupported_name"]]
    assert list(sampled.kinds) == [*VERDICTS, "passes", "unsupported_name"]
    assert not sampled.beside["unsupported"].any()


@pytest.mark.parametrize("seed", range(3))
def test_the_record_is_that_of_a_slow_count(seed: int) -> None:
    """Shares of kinds sum to 1; orders are those of all pairs of one answer, one after the other."""
    rng = np.random.default_rng(seed)
    rewards, human = rng.integers(0, 4, (40, 5)).astype(float), rng.integers(0, 4, 40).astype(float)
    rewards[rng.random((40, 5)) < 0.1], human[3] = np.nan, np.nan
    names = rng.choice(["right", "ill_formed", "ambiguous"], (40, 5), p=[0.2, 0.5, 0.3])
    kinds = {kind: names == kind for kind in ("right", "ill_formed", "ambiguous", "other_subject")}
    draws = PassageDraws([number // 2 for number in range(40)], resamples=50)
    flag = rng.random((40, 5)) < 0.5
    sampled = SampledQuestions("m", [], kinds, {"unsupported": flag})
    record = sampled_record(sampled, rewards, human, draws)
    assert sum(found["share"] for found in record["kinds"].values()) == pytest.approx(1)
    assert record["failed"] == np.isnan(rewards).sum() > 0
    parts = {kind: (record["kinds"][kind], kinds[kind]) for kind in kinds if kind not in RIGHT}
    parts |= {"wrong": (record["wrong"], names != "right")}
    parts |= {"beside": (record["beside"]["unsupported"], flag & (names != "right"))}
    for found, mask in parts.values():
        assert found["share"] == pytest.approx(mask.mean()) and found["low"] <= found["share"] <= found["high"]
        orders, stood_in = [], 0
        for row in range(40):
            right = [r for r, name in zip(rewards[row], names[row], strict=True) if name == "right" and r == r]
            wrong = [r for r, is_wrong in zip(rewards[row], mask[row], strict=True) if is_wrong and r == r]
            pairs = list(product(right or [r for r in [human[row]] if r == r], wrong))
            if pairs:
                orders.append(sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs) / len(pairs))
                stood_in += not right
        assert (found["answers"], found["human"]) == (len(orders), stood_in)
        assert found["auc"] == (pytest.approx(np.mean(orders)) if orders else None)
    assert parts["other_subject"][0]["auc"] is None and parts["wrong"][0]["human"] > 0


def record_of(share: float, auc: float, spread: float, passages: int = 30) -> dict[str, Any]:
    order = {"auc": auc, "auc_low": auc - spread, "auc_high": auc + spread, "passages": passages}
    sure = {"auc": 0.9, "low": 0.8, "high": 0.95, "n": 90}
    wrong = {"share": 0.5, "auc": 0.9, "auc_low": 0.8, "auc_high": 0.95, "passages": 30}
    kinds = {"right": {"share": 0.5}, "invented_name": {"share": share, **order}}
    return {"passages": 30, "pairs": {}, "auc": sure, "sampled": {"kinds": kinds, "wrong": wrong}}


def test_a_frequent_error_that_the_reward_does_not_see_is_in_doubt() -> None:
    assert doubts(record_of(0.19, 0.49, 0.1)) == (
        "of the generator's own questions the reward cannot tell right ones from: a name that nobody in the passage "
        "has (19.0% of the samples, 0.490 [0.390, 0.590] in order)"
    )
    preferred = doubts(record_of(0.02, 0.2, 0.1))
    assert preferred is not None and preferred.startswith(
        "of the generator's own questions the reward prefers to right ones: a name that nobody in the passage has"
    )
    for known in (record_of(0.19, 0.9, 0.1), record_of(0.019, 0.2, 0.1), record_of(0.19, 0.2, 0.1, passages=9)):
        assert doubts(known) is None  # told; rare; in too few passages


@pytest.mark.parametrize(("share", "warned"), [(0.0, False), (0.019, False), (0.021, True), (None, True)])
def test_a_kind_made_by_rule_is_in_doubt_unless_the_generator_seldom_writes_it(
    share: float | None, warned: bool
) -> None:
    record = record_of(0.19, 0.9, 0.05)
    record["pairs"]["wrong_entity"] = {"auc": 0.5, "low": 0.43, "high": 0.57, "n": 90}
    if share is not None:
        told_apart = {"auc": 0.9, "auc_low": 0.8, "auc_high": 0.95, "passages": 30}
        record["sampled"]["kinds"]["other_subject"] = {"share": share, **told_apart}
    assert ("the question with another name" in (doubts(record) or "")) is warned


def test_before_training_the_samples_are_tested_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Kinds made by rule are no warning while it is not known how frequent they are."""

    def blind_to_names(questions: list[str], *_: Any, **unused: Any) -> list[float]:
        return [float(text in known) for text in questions]

    known = {item.question for item in WORLD}
    known |= {text for text in wrong_questions(WORLD, WORLD, 0)["wrong_entity"] if text is not None}
    reward: Any = SimpleNamespace(needs=(), signature="blind", score=blind_to_names)

    def right(examples: Sequence[QAExample]) -> SampledQuestions:
        return labelled("ce", [[item.question] for item in examples], examples)

    check_reward(reward, WORLD, tmp_path, count=40, seed=0, again=True)
    assert not [line for line in caplog.records if line.levelname == "WARNING"]
    check_reward(reward, WORLD, tmp_path, count=40, seed=0, sampler=right)
    record = json.loads((tmp_path / "separation.json").read_text())
    assert record["sampled"]["kinds"]["right"]["share"] == 1 and record["pairs"]["wrong_entity"]["auc"] == 0.5
    assert not [line for line in caplog.records if line.levelname == "WARNING"]
    check_reward(reward, WORLD, tmp_path, count=40, seed=0, sampler=lambda examples: pytest.fail("sampled again"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "ce"
    words = {word for item in WORLD[:20] for word in f"{item.context} {item.question}".split()}
    tokenizer = word_tokenizer(" ".join(sorted(words)))
    return Path(save(folder, tokenizer, tiny_bart(len(tokenizer), positions=256)))


def test_samples_of_an_answer_depend_on_seed_and_id_alone(model: Path) -> None:
    generator = CandidateGenerator(model, device=torch.device("cpu"))
    options: dict[str, Any] = {"max_new_tokens": 5, "top_p": 1.0, "temperature": 1.0}
    some = WORLD[:18]  # more than are sampled at a time
    questions = sampler("m", generator, 3, **options, seed=7)(some).questions
    for item, group in zip(some, questions, strict=True):
        [alone] = generator.candidates([item], 3, **options, seed=7)
        assert [candidate.question for candidate in alone] == group
    assert sampler("m", generator, 3, **options, seed=8)(some).questions != questions


def test_the_page_shows_kinds_and_examples(tmp_path: Path) -> None:
    evil = [replace(item, question=f"{item.question}<script>") for item in ORDINARY]
    write_separation(tmp_path, separation(WordCount(), evil, sampler=of_stub()))
    page = (tmp_path / "separation.html").read_text()
    assert "<script>" not in page and "Who wrote Hamlet?" in page and "a name or number that the passage lacks" in page
    assert "for 1 of 2 answers" in (tmp_path / "separation.txt").read_text()
    lines = (tmp_path / "tables" / "sampled_questions.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["kind", "passes", "ill_formed", "unsupported_name", "wrong"]


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    monkeypatch.chdir(tmp_path)
    write_squad(tmp_path / "dev.json", WORLD[:20])
    return [
        *("reward=custom", "reward._target_=tests.rl_qg.scoring.test_separation.Constant"),
        *("training.use_cpu=true", "data.train=dev.json", "data.validation=dev.json", "output=out", "resamples=50"),
    ]


def test_the_command_samples_from_a_run(
    arguments: list[str], model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run_command("separate", [*arguments, f"model.path={model.parent}", "samples=2", "scst.max_new_tokens=4"])
    sampled = json.loads((tmp_path / "out" / "separation.json").read_text())["sampled"]
    assert sampled["model"] == str(model.parent) and sampled["samples_per_answer"] == 2
    assert sampled["wrong"]["auc"] == 0.5 and sampled["wrong"]["answers"] == 20  # a constant reward
    assert sampled["kinds"]["ill_formed"]["share"] > 0.5 and "ill-formed" in caplog.text  # the model is untrained
    run_command("separate", [*arguments])
    assert "sampled" not in json.loads((tmp_path / "out" / "separation.json").read_text())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["model.path=./no-run"], r"model\.path=\./no-run: no such folder; check the path"),
        (["model.path=."], r"model\.path=\.: no model folder \(it has no config\.json\)"),
        (["model.path=pairs"], r"model\.path=pairs: this model writes pairs"),
        (["model.path=pairs", "samples=0"], r"samples=0 must be at least 1"),
        (["reader=./reader"], r"reader=\./reader reads what a generator samples; name one with model\.path=RUN"),
        (["model.path=ok", "reader=./no-reader"], r"\./no-reader"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], more: list[str], message: str, model: Path, tmp_path: Path
) -> None:
    for name, task in (("pairs", "pairs"), ("ok", "questions")):
        generator, tokenizer = load_generator(str(model))
        save(tmp_path / name, tokenizer, generator)
        Prompt(task=task).save(tmp_path / name)
    with pytest.raises(Exception, match=message) as raised:
        run_command("separate", [*arguments, *more])
    assert "\n" not in str(raised.value) and type(raised.value).__name__ in ("InputError", "MetricInputError")
