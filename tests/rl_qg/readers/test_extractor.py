"""The answer extractor: its windows and labels, the spans of its probabilities, and training on a toy task."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from transformers import BertModel

from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.answer_extractor import (
    BEGIN,
    INSIDE,
    OUTSIDE,
    ExtractorAnswers,
    TokenWindow,
    human_spans,
    labels_of,
    score_proposals,
    tagged_spans,
    train_extractor,
    windows,
)
from rl_qg.readers.encoders import IGNORED
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trainer_base import Preemption
from rl_qg.settings import QAModelSettings, TrainAnswersSettings
from tests.questions import example
from tests.tiny_models import save, tiny, word_tokenizer

FILLER = "the saw and near a ran to was very".split()
ANSWERS = ["fox", "old horse", "deep green sea", "paris"]
WORDS = " ".join([*FILLER, *ANSWERS])


def one_window(text: str) -> TokenWindow:
    """A window of single words, between two special tokens."""
    bounds, position = [(0, 0)], 0
    for word in text.split():
        start = text.index(word, position)
        position = start + len(word)
        bounds.append((start, position))
    return TokenWindow(np.arange(len(bounds) + 1), np.array([*bounds, (0, 0)]), 0)


def test_labels_mark_first_and_further_tokens_and_ignore_special_ones() -> None:
    window = one_window("the old horse saw paris")
    labels = labels_of(window, [(4, 13), (18, 23)])
    assert labels.tolist() == [IGNORED, OUTSIDE, BEGIN, INSIDE, OUTSIDE, BEGIN, IGNORED]
    later = TokenWindow(window.ids[2:], window.offsets[2:], 0)  # begins within the answer
    cut = TokenWindow(later.ids[1:], later.offsets[1:], 0)
    assert labels_of(cut, [(4, 13)]).tolist() == [INSIDE, OUTSIDE, OUTSIDE, IGNORED]


def test_of_overlapping_human_answers_the_longest_is_kept() -> None:
    text = "the old horse saw paris"
    rows = [example(text, "horse", "?", "a"), example(text, "old horse", "?", "b"), example(text, "paris", "?", "c")]
    assert human_spans(rows) == {text: [(4, 13), (18, 23)]}


@given(st.lists(st.sampled_from([*FILLER, *ANSWERS]), min_size=1, max_size=30), st.integers(6, 12), st.integers(0, 3))
def test_windows_cover_every_word_and_labels_give_back_their_spans(
    pieces: list[str], max_length: int, doc_stride: int
) -> None:
    """With probability 1 for each label, the tagged spans are those that the labels were made from."""
    text, spans = "", []
    for piece in pieces:
        text += " " if text else ""
        if piece in ANSWERS and not (spans and spans[-1][1] == len(text) - 1):
            spans.append((len(text), len(text) + len(piece)))
        text += piece
    rows = windows([text], word_tokenizer(WORDS), max_length=max_length, doc_stride=doc_stride)
    assert all(len(row.ids) <= max_length for row in rows)
    seen = {tuple(bound) for row in rows for bound in row.offsets.tolist() if bound[0] < bound[1]}
    assert {text[start:end] for start, end in seen} == set(text.split())
    parts = []
    for row in rows:
        labels = np.where((all_labels := labels_of(row, spans)) == IGNORED, OUTSIDE, all_labels)
        parts.append((row, np.eye(3, dtype=np.float32)[labels]))
    assert [(span.start, span.end) for span in tagged_spans(text, parts, 0.5)] == spans


def test_an_answer_continues_while_I_is_at_least_half_of_its_B() -> None:
    text = "the old horse saw paris"
    table = np.zeros((7, 3), dtype=np.float32)
    table[2, BEGIN], table[3, INSIDE], table[4, INSIDE], table[5, BEGIN] = 0.2, 0.1, 0.09, 0.05
    spans = tagged_spans(text, [(one_window(text), table)], 0.1)
    assert [(text[span.start : span.end], round(span.score, 3)) for span in spans] == [("old horse", 0.2)]
    assert len(tagged_spans(text, [(one_window(text), table)], 0.05)) == 2


def test_subwords_form_one_word_but_characters_of_a_script_without_spaces_do_not() -> None:
    def window(bounds: list[tuple[int, int]]) -> TokenWindow:
        return TokenWindow(np.arange(len(bounds)), np.array(bounds), 0)

    table = np.array([[0.0, 0.9, 0.0], [0.9, 0.0, 0.1], [0.9, 0.0, 0.1]], dtype=np.float32)
    word, script = "parisian", "東京は"
    pieces = window([(0, 3), (3, 6), (6, 8)])
    assert [(span.start, span.end) for span in tagged_spans(word, [(pieces, table)], 0.5)] == [(0, 8)]
    signs = window([(0, 1), (1, 2), (2, 3)])
    assert [(span.start, span.end) for span in tagged_spans(script, [(signs, table)], 0.5)] == [(0, 1)]


def test_scores_equal_values_computed_by_hand() -> None:
    horse, fox = "the old horse saw paris", "a fox ran"
    rows = [
        example(horse, "old horse", "?", "a"),
        example(horse, "paris", "?", "b"),
        QAExample("c", "", fox, "?", (Answer("fox", 2), Answer("a fox", 0))),
        example(fox, "ran", "?", "d"),
    ]
    scores = score_proposals({horse: ["The old horse.", "saw", "paris saw the"], fox: ["a fox"]}, rows)
    assert scores["questions"] == 4 and scores["passages"] == 2
    assert scores["spans_per_passage"] == 4 / 2
    assert scores["precision"] == 2 / 4  # old horse, fox
    assert scores["recall"] == 2 / 4
    assert scores["close_recall"] == 3 / 4  # paris: 2 * 1 / (2 + 1) of "paris saw"
    assert scores["distinct_recall"] == 2 / 4
    assert score_proposals({}, rows)["recall"] == 0


# --- Training ---


def toy(count: int, seed: int) -> list[QAExample]:
    """Passages of filler words with two answers each, and one question for each answer."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        chosen = rng.sample(ANSWERS, 2)
        pieces = [*chosen, *rng.choices(FILLER, k=6)]
        rng.shuffle(pieces)
        for k, answer in enumerate(chosen):
            start = len(" ".join(pieces[: pieces.index(answer)]))
            context = " ".join(pieces)
            rows.append(QAExample(f"{number}-{k}", "", context, "?", (Answer(answer, start + (start > 0)),)))
    return rows


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = word_tokenizer(WORDS)
    tokenizer.model_max_length = 32
    model = tiny(BertModel, len(tokenizer), hidden=32, positions=32, spread=0.2)
    return Path(save(tmp_path_factory.mktemp("encoder"), tokenizer, model))


def settings(encoder: Path, **changes: object) -> TrainAnswersSettings:
    chosen = TrainAnswersSettings(
        model=QAModelSettings(str(encoder)),
        max_steps=24,
        learning_rate=1e-2,
        batch_size=8,
        save_steps=5,
        max_length=16,
        doc_stride=4,
    )
    return replace(chosen, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_extractor(toy(40, 1), toy(20, 2), FineTuning(settings(encoder), folder, seed=3, use_cpu=True))
    return folder


@pytest.mark.slow
def test_it_learns_which_spans_are_answers(trained: Path) -> None:
    scores = json.loads((trained / "answers_metrics.json").read_text())["proposals"]["10"]
    assert scores["recall"] > 0.9 and scores["precision"] > 0.9
    assert not list(trained.glob("checkpoint-*")) and not (trained / "model.part").exists()
    propose = ExtractorAnswers(str(trained), None, min_probability=0.1, device=torch.device("cpu"))
    contexts = ["the deep green sea was near paris", "a fox and the old horse ran", "the and a very"]
    together = propose(contexts)
    texts = [[text[span.start : span.end] for span in spans] for text, spans in zip(contexts, together, strict=True)]
    assert [sorted(answers) for answers in texts] == [["deep green sea", "paris"], ["fox", "old horse"], []]
    separate = [propose([context])[0] for context in contexts]
    for first, second in zip(together, separate, strict=True):
        assert [(span.start, span.end) for span in first] == [(span.start, span.end) for span in second]


@pytest.mark.slow
def test_an_interrupted_training_continues_to_the_same_weights(
    encoder: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_qg.runtime.errors import Terminated

    original = Preemption.on_step_end

    def stop(self: Preemption, args: object, state: object, control: object, **kwargs: object) -> None:
        self.signalled = state.global_step == 7  # type: ignore[attr-defined]
        original(self, args, state, control, **kwargs)  # type: ignore[arg-type]

    train, validation = toy(40, 1), toy(20, 2)
    options = {"settings": settings(encoder), "output_dir": tmp_path, "seed": 3, "use_cpu": True}
    monkeypatch.setattr(Preemption, "on_step_end", stop)
    with pytest.raises(Terminated):
        train_extractor(train, validation, FineTuning(**options))  # type: ignore[arg-type]
    monkeypatch.undo()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-7"]
    train_extractor(train, validation, FineTuning(**options))  # type: ignore[arg-type]
    assert (tmp_path / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    before = (tmp_path / "answers_metrics.json").read_text()
    monkeypatch.setattr("rl_qg.readers.answer_extractor.load_model", lambda path: pytest.fail("trained again"))
    train_extractor(train, validation, FineTuning(**options))  # type: ignore[arg-type]
    assert (tmp_path / "answers_metrics.json").read_text() == before


def test_invalid_data_and_settings_are_one_line(encoder: Path, tmp_path: Path) -> None:
    def fault(train: list[QAExample], **changes: object) -> str:
        with pytest.raises(InputError) as error:
            train_extractor(train, toy(2, 0), FineTuning(settings(encoder, **changes), tmp_path, seed=0))
        return str(error.value)

    assert "data.train: no examples" in fault([])
    assert "max_length=64 is above the 32 tokens" in fault(toy(2, 0), max_length=64)
    assert "leaves no room" in fault(toy(2, 0), doc_stride=15)
    assert "no such folder" in fault(toy(2, 0), model=QAModelSettings("/no/model"))
    with pytest.raises(InputError, match="its labels are not O, B, I"):
        ExtractorAnswers(str(encoder), None, min_probability=0.1, device=torch.device("cpu"))


def test_white_space_at_the_ends_of_an_answer_belongs_to_no_token() -> None:
    text = "It burned in 1873 ."
    rows = [example(text, answer, "?", str(number)) for number, answer in enumerate(("1873", " 1873", "1873 "))]
    assert human_spans(rows) == {text: [(13, 17)]}
