"""Generators side by side: the same examples, the same reward, paired."""

import json
import math
import weakref
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from rewards import load
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, passage_hash
from rl_qg.evaluation import compare_generators
from rl_qg.evaluation.compare_generators import _interval, evaluate_generators
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.held_out import bleu4, held_out_measures
from rl_qg.stats.intervals import SHARE, PassageDraws, interval_ends, mean_interval, paired_interval
from tests.questions import example
from tests.tiny_models import tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))


class Length:
    signature = "length"

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[float(len(question)) for question in questions])


class Picky:
    """Gives no reward to a question that begins with what it dislikes."""

    signature = "picky"

    def __init__(self, *dislikes: str) -> None:
        self.dislikes = dislikes

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        scores = [None if question.startswith(self.dislikes) else float(len(question) % 7) for question in questions]
        parts = {"half": [float("nan") if score is None else score / 2 for score in scores], "text": list(questions)}
        return SimpleNamespace(scores=scores, parts=parts)


ROWS = [example(f"w{k} w{k + 1} w{k + 2}", f"w{k + 1}", f"w{k} w3", id=str(k)) for k in range(10)]
OPTIONS: dict[str, Any] = {"max_new_tokens": 6, "batch_size": 3, "device": torch.device("cpu")}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for name, seed in (("ce", 1), ("scst", 2)):
        tokenizer = word_tokenizer(WORDS)
        tiny_bart(len(tokenizer), seed=seed).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in ("ce", "scst")}


@pytest.fixture(scope="module")
def texts(models: dict[str, Path]) -> dict[str, list[str]]:
    return {
        name: CandidateGenerator(path, device=torch.device("cpu")).greedy(ROWS, max_new_tokens=6)
        for name, path in models.items()
    }


def test_numbers_are_those_of_the_models_and_pairs_are_kept(
    models: dict[str, Path], texts: dict[str, list[str]], tmp_path: Path
) -> None:
    result = evaluate_generators(models, ROWS, Length(), tmp_path / "evaluation.json", **OPTIONS)
    lengths = {name: [len(text) for text in written] for name, written in texts.items()}
    for name in models:
        part = result["models"][name]
        assert part["reward"]["mean"] == pytest.approx(sum(lengths[name]) / 10)
        gold = [[row.question for row in ROWS]]
        assert part["bleu4"]["mean"] == pytest.approx(sacrebleu.corpus_bleu(texts[name], gold).score / 100)
    paired = [b - a for a, b in zip(lengths["ce"], lengths["scst"], strict=True)]
    assert result["difference"]["reward"]["mean"] == pytest.approx(sum(paired) / 10)
    assert result["models"]["gold"]["reward"]["mean"] == pytest.approx(5.0)
    for sample, row in zip(result["samples"], ROWS, strict=True):
        assert sample["id"] == row.id and sample["gold"] == row.question
        assert sample["reward_scst"] == len(sample["scst"])
    assert "held_out" not in result["difference"] and "held_out" not in result["models"]["ce"]
    assert json.loads((tmp_path / "evaluation.json").read_text()) == result


def test_every_model_has_the_measures_that_the_reward_does_not_see(
    models: dict[str, Path], texts: dict[str, list[str]], tmp_path: Path
) -> None:
    summaries = evaluate_generators(models, ROWS, Length(), tmp_path / "evaluation.json", **OPTIONS)["models"]
    gold, contexts = [row.question for row in ROWS], [row.context for row in ROWS]
    for name, written in {**texts, "gold": gold}.items():
        for measure, value in held_out_measures(written, gold, contexts).items():
            if measure == "bleu4" and name != "gold":
                interval = summaries[name]["bleu4"]
                assert interval["mean"] == pytest.approx(value) and interval["low"] <= value <= interval["high"]
            elif name != "gold" or measure not in ("bleu4", "rouge_l"):  # gold against itself says nothing
                assert summaries[name][measure] == value
    assert not {"bleu4", "rouge_l"} & set(summaries["gold"])
    assert summaries["ce"]["bleu_signature"] == f"{load('bleu4').signature}|set:corpus"
    assert summaries["ce"]["rouge_l_signature"] == f"{load('rouge_l').signature}|set:mean"


def test_a_second_reward_is_reported_next_to_the_first(
    models: dict[str, Path], texts: dict[str, list[str]], tmp_path: Path
) -> None:
    unwanted = texts["scst"][0].split()[0]
    output = tmp_path / "evaluation.json"
    result = evaluate_generators(models, ROWS, Length(), output, **OPTIONS, held_out=Picky(unwanted))
    scores = {
        name: [None if t.startswith(unwanted) else len(t) % 7 for t in written] for name, written in texts.items()
    }
    usable = [score for score in scores["scst"] if score is not None]
    assert 0 < len(usable) < 10
    part = result["models"]["scst"]
    assert (part["held_out"]["mean"], part["held_out"]["n"]) == (pytest.approx(sum(usable) / len(usable)), len(usable))
    assert part["held_out_parts"]["half"]["mean"] == pytest.approx(part["held_out"]["mean"] / 2)
    assert set(part["held_out_parts"]) == {"half"}  # a part that holds no numbers has no mean
    numbers = {name: [math.nan if one is None else one for one in values] for name, values in scores.items()}
    expected = paired_interval(numbers["scst"], numbers["ce"], PassageDraws(range(10)))
    assert result["difference"]["held_out"] == vars(expected)
    assert result["held_out_signature"] == "picky" and result["reward_signature"] == "length"
    assert result["samples"][0]["held_out_scst"] is None
    assert json.loads(output.read_text()) == result


def test_intervals_resample_passages(models: dict[str, Path], tmp_path: Path) -> None:
    rows = [*ROWS, *(replace(row, id=f"{row.id} again") for row in ROWS)]  # the same passage and answer twice
    once = evaluate_generators(models, ROWS, Length(), tmp_path / "once.json", **OPTIONS)
    twice = evaluate_generators(models, rows, Length(), tmp_path / "twice.json", **OPTIONS)
    assert (once["passages"], twice["passages"], twice["resampled"]) == (10, 10, "passages")
    for name in ("ce", "scst", "gold"):
        before, after = once["models"][name]["reward"], twice["models"][name]["reward"]
        assert after == {**before, "n": 20}  # twice the questions say nothing new about other passages
    assert twice["difference"]["reward"] == {**once["difference"]["reward"], "n": 20}
    scores = [len(row.question) for row in ROWS]
    expected = mean_interval(scores, PassageDraws([passage_hash(row.context) for row in ROWS]))
    assert once["models"]["gold"]["reward"] == vars(expected)


def test_the_interval_of_bleu_is_of_the_corpus_scores_of_drawn_passages(texts: dict[str, list[str]]) -> None:
    passages = [k // 2 for k in range(10)]
    draws = PassageDraws(passages, resamples=60)
    gold = [row.question for row in ROWS]
    values = []
    for weights in np.concatenate(list(draws.blocks())):
        drawn = [k for k in range(10) for _ in range(int(weights[passages[k]]))]
        texts_drawn, gold_drawn = [texts["ce"][k] for k in drawn], [gold[k] for k in drawn]
        values.append(sacrebleu.corpus_bleu(texts_drawn, [gold_drawn]).score / 100)
    counts = bleu4().statistics(texts["ce"], [[text] for text in gold])
    interval = _interval(bleu4().corpus(draws.sums(counts)), draws, SHARE)
    assert (interval.n, interval.passages, interval.mean) == (10, 5, pytest.approx(values[0]))
    assert (interval.low, interval.high) == pytest.approx(interval_ends(np.array(values), 5, bounds=(0.0, 1.0)))
    one = PassageDraws([0] * 10, resamples=5)
    alone = _interval(bleu4().corpus(one.sums(counts)), one, SHARE)
    assert alone.low is None and alone.high is None


def test_a_reward_that_always_fails_ends_the_evaluation_with_its_error(
    models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="held_out: it fails on every question: the reward is None"):
        evaluate_generators(models, ROWS, Length(), tmp_path / "e.json", **OPTIONS, held_out=Picky(""))
    with pytest.raises(InputError, match="no held-out examples"):
        evaluate_generators(models, [], Length(), tmp_path / "e.json", **OPTIONS)
    assert not (tmp_path / "e.json").exists()


def test_on_the_embedded_corpus_the_oracle_says_what_each_generator_asks_for(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = list(synthetic_examples(6, seed=3))
    asked = {"ce": [row.question for row in rows], "scst": [row.question for row in rows]}
    asked["ce"][:4] = ["Why?", "Why?", "Why?", "Why Karl Umbsen?"]

    class Asks:
        def __init__(self, path: Path, **_: Any) -> None:
            self.questions = iter(asked[path.name])

        def greedy(self, examples: list[QAExample], **_: Any) -> list[str]:
            return list(islice(self.questions, len(examples)))

    monkeypatch.setattr(compare_generators, "CandidateGenerator", Asks)
    result = evaluate_generators(models, rows, Length(), tmp_path / "evaluation.json", **OPTIONS)
    n = len(rows)
    shares = {name: model["oracle"] for name, model in result["models"].items()}
    assert shares["gold"]["right"]["mean"] == shares["scst"]["right"]["mean"] == 1.0
    assert shares["ce"]["ill_formed"]["mean"] == pytest.approx(4 / n) and shares["ce"]["ill_formed"]["n"] == n
    assert shares["ce"]["no_subject"]["mean"] == pytest.approx(3 / n)
    assert shares["ce"]["unsupported"]["mean"] == pytest.approx(1 / n) and shares["gold"]["unsupported"]["mean"] == 0
    column = [float(k < 4) for k in range(n)]
    draws = PassageDraws([passage_hash(row.context) for row in rows])
    assert result["difference"]["oracle"]["right"] == vars(paired_interval(column, [0.0] * n, draws))
    lacking = [float(k == 3) for k in range(n)]
    assert result["difference"]["oracle"]["unsupported"] == vars(paired_interval([0.0] * n, lacking, draws))
    assert result["samples"][0]["oracle"] == {"ce": "ill_formed", "scst": "right", "gold": "right"}
    monkeypatch.undo()
    other = evaluate_generators(models, ROWS, Length(), tmp_path / "other.json", **OPTIONS)
    assert "oracle" not in {**other["models"]["ce"], **other["difference"], **other["samples"][0]}


def test_overlap_with_human_questions_is_compared_in_pairs(
    models: dict[str, Path], texts: dict[str, list[str]], tmp_path: Path
) -> None:
    """The differences are those of the two models' own numbers; the interval of BLEU-4 by a loop over the draws."""
    result = evaluate_generators(models, ROWS, Length(), tmp_path / "e.json", **OPTIONS)
    for name in ("bleu4", "rouge_l"):
        before, after = (result["models"][model][name] for model in ("ce", "scst"))
        values = [value["mean"] if isinstance(value, dict) else value for value in (before, after)]
        assert result["difference"][name]["mean"] == pytest.approx(values[1] - values[0])
    draws = PassageDraws([passage_hash(row.context) for row in ROWS])
    counts = {model: bleu4().statistics(texts[model], [[row.question] for row in ROWS]) for model in ("ce", "scst")}
    gains = []
    for weights in (row for block in draws.blocks() for row in block):
        drawn = weights[draws.passage_index]
        scores = {model: bleu4().corpus((drawn[:, None] * counts[model]).sum(axis=0)) for model in counts}
        gains.append(float(scores["scst"] - scores["ce"]))
    assert len(set(gains)) > 10
    low, high = interval_ends(np.array(gains), 10)
    interval = result["difference"]["bleu4"]
    assert (interval["low"], interval["high"]) == pytest.approx((low, high))
    assert (interval["n"], interval["passages"]) == (10, 10)


def test_one_generator_at_a_time_is_in_memory(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[weakref.ref[Any]] = []

    class Loaded(CandidateGenerator):
        def __init__(self, *args: Any, **options: Any) -> None:
            assert not any(earlier() for earlier in loaded)
            super().__init__(*args, **options)
            loaded.append(weakref.ref(self))

    class Reward(Length):
        def score(self, *args, **columns) -> Any:
            assert len(loaded) == 2 and not any(generator() for generator in loaded)
            return super().score(*args, **columns)

    monkeypatch.setattr(compare_generators, "CandidateGenerator", Loaded)
    evaluate_generators(models, ROWS, Reward(), tmp_path / "evaluation.json", **OPTIONS)
