"""The learned selector: a closed form against least squares, and a rule that it can only know by learning."""

from pathlib import Path

import numpy as np
import pytest

from rl_qg.asking.learned_selector import (
    FEATURES,
    LearnedSelector,
    Regression,
    gains,
    reference_scores,
    train_selector,
    worth,
)
from rl_qg.asking.set_pool import PassagePool
from rl_qg.runtime.errors import InputError
from rl_qg.text.spans import sentence_spans
from tests.rl_qg.asking.set_pools import PooledQuestion, pool

NAMES = ("Ada", "Otto", "Berta", "Rome", "Orlia", "Wendia")


def lesson(seed: int) -> tuple[PassagePool, list[str]]:
    """A passage of three sentences. People ask one `who` question about each; the model also asks `why` questions and
    repetitions, and is more sure of those.
    """
    draws = np.random.default_rng(seed)
    names = [str(name) for name in draws.permutation(NAMES)[:3]]
    context = " ".join(f"{name} built mill{seed}{place} there." for place, name in enumerate(names))
    questions, gold = [], []
    for place, span in enumerate(sentence_spans(context)):
        gold.append(f"who built mill{seed}{place} there ?")
        for rank, text in enumerate(
            (f"why mill{seed}{place} ?", f"who built mill{seed}{place} ?", f"who built the mill{seed}{place} ?")
        ):
            logprob = float(np.log(draws.uniform(0.6, 0.9) if not rank else draws.uniform(0.3, 0.6)))
            questions.append(PooledQuestion(text, *span, None, logprob, 1, rank))
    order = draws.permutation(len(questions))
    return PassagePool.of(context, [[questions[at] for at in order]]), gold


@pytest.fixture(scope="module")
def selector() -> LearnedSelector:
    return train_selector(*zip(*map(lesson, range(30)), strict=True))


def test_ridge_is_least_squares_of_more_rows() -> None:
    draws = np.random.default_rng(0)
    features, targets = draws.normal(3, 2, (40, 3)), draws.normal(size=40)
    features[:, 2] = 7.0  # never changes
    model = Regression.fit(features, targets)
    standard = (features[:, :2] - features[:, :2].mean(0)) / features[:, :2].std(0)
    longer = np.vstack([standard, np.eye(2)])  # a penalty of 1 is a row of the identity with target 0
    want, *_ = np.linalg.lstsq(longer, np.concatenate([targets - targets.mean(), [0, 0]]), rcond=None)
    assert model.weights == pytest.approx([*want, 0.0])
    assert model(features) == pytest.approx(targets.mean() + standard @ want)


def test_it_learns_what_people_ask_and_when_to_stop(selector: LearnedSelector) -> None:
    for seed in range(100, 110):
        found, gold = lesson(seed)
        chosen = selector.choose(found, None)
        assert [found.texts[row].split()[0] for row in chosen] == ["who"] * 3
        assert len({found.questions[row].start for row in chosen}) == 3  # of three sentences
        scores = reference_scores(found.texts, gold)
        probable = np.argsort(-found.probability)[:3]
        assert worth(scores[chosen]) > worth(scores[probable])
        assert selector.choose(found, 2) == chosen[:2]
        assert len(selector.choose(found, 99)) == len(found.questions)


def test_its_first_choice_adds_much_to_sets_of_new_passages(selector: LearnedSelector) -> None:
    adds = []
    for seed in range(200, 220):
        found, gold = lesson(seed)
        (first,) = selector.choose(found, 1)
        adds.append(gains(reference_scores(found.texts, gold), [])[first])
    assert np.mean(adds) > 0.85  # the best question has .89, a `why` question .29


def test_saved_and_loaded(selector: LearnedSelector, tmp_path: Path) -> None:
    path = tmp_path / "selector.json"
    selector.save(path)
    assert LearnedSelector.load(path) == selector and '"nearest chosen"' in path.read_text()
    path.write_text(path.read_text().replace("nearest chosen", "nearest"))
    for given, message in ((path, "no selector of this version"), (tmp_path / "none.json", "no such file")):
        with pytest.raises(InputError, match=message):
            LearnedSelector.load(given)
    path.write_text("[]")
    with pytest.raises(InputError, match="no selector of this version"):
        LearnedSelector.load(path)


def test_a_reader_in_training_is_one_in_use(selector: LearnedSelector) -> None:
    with pytest.raises(InputError, match=r"trained without a reader; leave out reader="):
        selector.choose(pool([0.5] * 5), 2)
    read = train_selector([pool([0.5] * 5)], [["Who built the mill?"]])
    assert read.with_reader and len(read.gain.weights) == len(FEATURES)
    with pytest.raises(InputError, match=r"trained with a reader; give reader="):
        read.choose(pool(), 2)
    with pytest.raises(InputError, match="some passages have answerability"):
        train_selector([pool(), pool([0.5] * 5)], [["Who?"], ["Who?"]])
    with pytest.raises(InputError, match="no passage has both"):
        train_selector([pool()], [[]])
