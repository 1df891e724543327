"""Windows and answers: labels decode back to the answers, and the vectorised search agrees with a slow one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.reader import WindowCollator, Windows, best_answers, encode
from rl_qg.runtime.errors import InputError
from tests.tiny_models import byte_tokenizer, piece_tokenizer

TEXT = (
    "The red fox ran from Paris to Łódź in 1901 . Who saw it ? A café in 東京 sells 🦊🦊 soup for three coins , "
    "and every visitor from the old town of Zürich asks which cook made the soup first ."
)


# No emoji in the vocabularies: the reader has to point at unknown tokens too.
KNOWN = [TEXT.replace("🦊", "")]


def wordpiece(**options) -> PreTrainedTokenizerFast:
    return piece_tokenizer(text=KNOWN, size=200, lowercase=True, **options)


def byte_level(**options) -> PreTrainedTokenizerFast:
    roles = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>"}
    tokenizer = byte_tokenizer(KNOWN, roles, size=300, **options)
    # As RoBERTa's: the space before a word is part of its token but not of its offsets.
    tokenizer.backend_tokenizer.post_processor = processors.RobertaProcessing(
        sep=("</s>", 2), cls_token=("<s>", 0), add_prefix_space=False
    )
    return tokenizer


TOKENIZERS = {"wordpiece": wordpiece, "byte_level": byte_level}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


def example(context: str, answer: str, question: str = "which cook ?", key: str = "q") -> QAExample:
    return QAExample(key, "t", context, question, (Answer(answer, context.index(answer)),))


def labelled_texts(windows: Windows, examples: list[QAExample]) -> list[str | None]:
    """Text under the label of each window; None where the label is outside of the passage."""
    texts: list[str | None] = []
    for window in range(len(windows)):
        first, last = windows.labels[window]
        if not windows.contexts[window, 0] <= first < windows.contexts[window, 1]:
            texts.append(None)
            continue
        base = windows.bounds[window]
        span = slice(windows.offsets[base + first, 0], windows.offsets[base + last, 1])
        texts.append(examples[windows.examples[window]].context[span])
    return texts


def one_window(item: QAExample, tokenizer: PreTrainedTokenizerFast) -> Windows:
    return encode([item], tokenizer, max_length=500, doc_stride=20, token_types=False)


@pytest.mark.parametrize("answer", ["fox", "Łódź", "The red", "café", "東京", "🦊🦊 soup", "1901", "first .", TEXT])
def test_the_label_is_the_answer(tokenizer, answer) -> None:
    item = example(TEXT, answer)
    assert labelled_texts(one_window(item, tokenizer), [item]) == [answer]


def test_an_answer_inside_a_token_is_widened_to_the_token() -> None:
    item = QAExample("q", "t", "sold for 3coins", "how ?", (Answer("coin", 10),))
    windows = one_window(item, wordpiece())
    (text,) = labelled_texts(windows, [item])
    assert text is not None and "coin" in text and text in "3coins"


@pytest.mark.parametrize(("context", "answer"), [("red fox ran", " fox "), (" fox ran", " fox"), ("a fox ", "fox ")])
def test_white_space_around_an_answer_belongs_to_no_token(tokenizer, context, answer) -> None:
    assert labelled_texts(one_window(example(context, answer), tokenizer), [example(context, answer)]) == ["fox"]


def test_punctuation_that_touches_an_answer_is_left_out(tokenizer) -> None:
    item = example("the fox,(1901);ran", "1901")
    assert labelled_texts(one_window(item, tokenizer), [item]) == ["1901"]


def byte_level_with_spaces() -> PreTrainedTokenizerFast:
    """As ModernBERT's: the space before a word belongs to the offsets of its token."""
    tokenizer = byte_level()
    marks = [("<s>", tokenizer.cls_token_id), ("</s>", tokenizer.sep_token_id)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=marks
    )
    return tokenizer


@pytest.mark.parametrize("make", [wordpiece, byte_level, byte_level_with_spaces])
@pytest.mark.parametrize("answer", ["fox", "Jose\u0301", "cafe\u0301"])
def test_answers_have_whole_letters_and_no_space_around_them(make, answer) -> None:
    item = example("The red fox and Jose\u0301 ran from a cafe\u0301", answer)  # accents of their own, as in NFD
    windows = one_window(item, make())
    start, end = (np.zeros((1, windows.bounds[1])) for _ in range(2))
    start[0, windows.labels[0, 0]] = end[0, windows.labels[0, 1]] = 1
    assert best_answers(windows, [item], start, end, n_best=5, max_answer_length=30) == {"q": answer}


def test_the_offset_decides_between_equal_words(tokenizer) -> None:
    item = QAExample("q", "t", "the fox saw the fox", "who ?", (Answer("fox", 16),))
    windows = one_window(item, tokenizer)
    assert labelled_texts(windows, [item]) == ["fox"]
    assert windows.offsets[windows.labels[0, 0], 0] == 16


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(TOKENIZERS)),
    words=st.lists(st.sampled_from([*TEXT.split(), "ﬁne", "e\u0301", "x\u200dy", "🇩🇪"]), min_size=1, max_size=60),
    begin=st.integers(0, 59),
    length=st.integers(1, 4),
)
def test_labels_decode_to_the_answer_in_every_window_that_holds_it(kind, words, begin, length) -> None:
    begin %= len(words)
    context = " ".join(words)
    start = len(" ".join(words[:begin])) + (begin > 0)
    answer = " ".join(words[begin : begin + length])
    item = QAExample("q", "t", context, "who saw it ?", (Answer(answer, start),))
    tokenizer = TOKENIZERS[kind]()
    windows = encode([item], tokenizer, max_length=60, doc_stride=20, token_types=False)
    for window, text in enumerate(labelled_texts(windows, [item])):
        low, high = windows.contexts[window]
        spans = windows.offsets[windows.bounds[window] + low : windows.bounds[window] + high]
        # Offsets follow what the normaliser keeps: a joiner or an accent at the edge of an answer has no token.
        kept = answer.strip("\u200d\u0301")
        if spans[0, 0] <= start and spans[-1, 1] >= start + len(answer):
            assert text is not None and kept in text and text in answer
        if text is not None:
            assert kept in text


def test_long_passages_are_read_in_overlapping_windows(tokenizer) -> None:
    context = " ".join(f"soup{number}" for number in range(120))
    item = example(context, "soup77")
    windows = encode([item], tokenizer, max_length=64, doc_stride=16, token_types=False)
    assert len(windows) > 2
    assert windows.lengths.max() == 64 and windows.lengths.min() > 0
    texts = labelled_texts(windows, [item])
    assert set(texts) == {"soup77", None}
    spans = [
        windows.offsets[windows.bounds[w] + low : windows.bounds[w] + high]
        for w, (low, high) in enumerate(windows.contexts)
    ]
    for former, latter in pairwise(spans):
        assert (former[-16:] == latter[:16]).all() and former[-17, 0] < latter[0, 0]
    assert spans[0][0, 0] == 0 and spans[-1][-1, 1] == len(context)
    assert windows.counts() == {"examples": 1, "windows": len(windows), "questions_cut": 0, "answers_in_no_window": 0}


def test_an_answer_longer_than_every_window_is_counted(tokenizer) -> None:
    context = " ".join(f"soup{number}" for number in range(120))
    windows = encode([example(context, context)], tokenizer, max_length=64, doc_stride=16, token_types=False)
    assert (windows.labels == 0).all()
    assert windows.counts()["answers_in_no_window"] == 1


@pytest.mark.parametrize("question", ["which cook made the soup " * 50, "🦊🦊 " * 100, "東京" * 200, "fox" * 30])
@pytest.mark.parametrize("doc_stride", [16, 50])
def test_a_question_that_is_too_long_loses_its_end(tokenizer, question, doc_stride) -> None:
    items = [example(TEXT, "Zürich", question, "long"), example(TEXT, "Zürich", "who ?", "short")]
    windows = encode(items, tokenizer, max_length=64, doc_stride=doc_stride, token_types=False)
    assert windows.questions_cut == 1
    assert windows.lengths.max() <= 64
    assert {text for text in labelled_texts(windows, items) if text} == {"Zürich"}
    for number, item in enumerate(items):
        seen = np.zeros(len(item.context), dtype=bool)
        for window in np.flatnonzero(windows.examples == number):
            low, high = windows.bounds[window] + windows.contexts[window]
            for start, end in windows.offsets[low:high]:
                seen[start:end] = True
        assert all(seen[i] or item.context[i] == " " for i in range(len(seen)))


def test_a_window_without_room_for_a_question_is_refused(tokenizer) -> None:
    with pytest.raises(InputError, match=r"qa\.max_length=24 leaves no room for a question beside qa\.doc_stride=23"):
        encode([example(TEXT, "fox")], tokenizer, max_length=24, doc_stride=23, token_types=False)


def test_a_passage_without_tokens_gets_an_empty_answer() -> None:
    item = QAExample("q", "t", "\u200d", "who ?", ())
    windows = one_window(item, wordpiece())
    logits = np.ones((1, windows.lengths[0]))
    assert windows.contexts.tolist() == [[0, 0]]
    assert best_answers(windows, [item], logits, logits, n_best=5, max_answer_length=5) == {"q": ""}


def test_sides_of_the_tokenizer_do_not_matter() -> None:
    item, tokenizer = example(TEXT, "Zürich"), wordpiece()
    plain = encode([item], tokenizer, max_length=64, doc_stride=16, token_types=True)
    tokenizer.padding_side = "left"
    left = encode([item], tokenizer, max_length=64, doc_stride=16, token_types=True)
    for name in ("ids", "token_types", "labels", "contexts"):
        assert (getattr(plain, name) == getattr(left, name)).all()


def test_batches_are_padded_on_the_right_and_carry_token_types() -> None:
    items = [example("red fox", "fox", "who ?"), example("the red fox ran", "ran", "who saw ?")]
    tokenizer = wordpiece(padding_side="left")
    windows = encode(items, tokenizer, max_length=64, doc_stride=16, token_types=True)
    batch = WindowCollator(tokenizer.pad_token_id)([windows[0], windows[1]])
    longest = int(windows.lengths.max())
    assert {name: tuple(value.shape) for name, value in batch.items()} == {
        "input_ids": (2, longest),
        "attention_mask": (2, longest),
        "token_type_ids": (2, longest),
        "labels": (2, 2),
    }
    expected = tokenizer([i.question for i in items], [i.context for i in items], return_token_type_ids=True)
    for row in range(2):
        length = int(windows.lengths[row])
        assert batch["input_ids"][row, :length].tolist() == expected["input_ids"][row]
        assert batch["token_type_ids"][row, :length].tolist() == expected["token_type_ids"][row]
        assert batch["attention_mask"][row].tolist() == [1] * length + [0] * (longest - length)
        assert batch["input_ids"][row, length:].eq(tokenizer.pad_token_id).all()
    plain = encode(items, tokenizer, max_length=64, doc_stride=16, token_types=False)
    assert "token_type_ids" not in WindowCollator(0)([plain[0]])


# --- Logits to answers ---


def slow_answers(windows, examples, start_logits, end_logits, *, n_best, max_answer_length, refuses) -> dict[str, str]:
    """Every pair of every window, one after the other."""
    answers = {}
    for number, item in enumerate(examples):
        candidates: list[tuple[float, str]] = []
        none = [
            start_logits[window][0] + end_logits[window][0] for window in np.flatnonzero(windows.examples == number)
        ]
        for window in range(len(windows)):
            if windows.examples[window] != number:
                continue
            context = list(range(*windows.contexts[window]))
            starts = sorted(context, key=lambda i: (-start_logits[window][i], i))[:n_best]
            ends = sorted(context, key=lambda i: (-end_logits[window][i], i))[:n_best]
            for start in starts:
                for end in ends:
                    if start <= end < start + max_answer_length:
                        base = windows.bounds[window]
                        span = slice(windows.offsets[base + start][0], windows.offsets[base + end][1])
                        score = start_logits[window][start] + end_logits[window][end]
                        candidates.append((score, item.context[span]))
        best = max(candidates, key=lambda pair: pair[0]) if candidates else (-np.inf, "")
        answers[item.id] = "" if refuses and min(none) > best[0] else best[1]
    return answers


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_best=st.integers(1, 12),
    max_answer_length=st.integers(1, 12),
    rounding=st.sampled_from([0, 8]),
    refuses=st.booleans(),
)
def test_the_fast_search_agrees_with_the_slow_one(seed, n_best, max_answer_length, rounding, refuses) -> None:
    rng = np.random.default_rng(seed)
    words = TEXT.split()
    items = []
    for number in range(4):
        context = " ".join(rng.choice(words, size=rng.integers(3, 70)))
        items.append(QAExample(f"q{number}", "t", context, "who saw it ?", ()))
    windows = encode(items, wordpiece(), max_length=48, doc_stride=12, token_types=False)
    shape = (len(windows), 52)  # wider than any window, as after a gather over processes
    start, end = (rng.normal(size=shape).round(rounding) for _ in range(2))  # rounded to 0 places: many ties
    start[:, 0] += 3  # else a refusal is rare
    options = {"n_best": n_best, "max_answer_length": max_answer_length, "refuses": refuses}
    assert best_answers(windows, items, start, end, **options) == slow_answers(windows, items, start, end, **options)


def test_the_sizes_of_chunks_do_not_matter(monkeypatch) -> None:
    words = TEXT.split()
    items = [example(" ".join(words[n:] * (n % 3 + 1)), words[n + 1], key=f"q{n}") for n in range(8)]
    tokenizer, rng = wordpiece(), np.random.default_rng(1)

    def result(start: np.ndarray, end: np.ndarray) -> tuple:
        windows = encode(items, tokenizer, max_length=48, doc_stride=12, token_types=False)
        answers = best_answers(
            windows, items, start[: len(windows)], end[: len(windows)], n_best=5, max_answer_length=5
        )
        return windows.ids.tolist(), windows.examples.tolist(), windows.labels.tolist(), answers

    logits = rng.normal(size=(2, 60, 48))
    whole = result(*logits)
    monkeypatch.setattr("rl_qg.readers.reader.WINDOWS_AT_ONCE", 4)
    assert result(*logits) == whole
    assert whole[1] == sorted(whole[1]) and set(whole[1]) == set(range(8)) and len(whole[1]) > 8


def test_spans_are_in_the_passage_and_in_the_right_order() -> None:
    item = example("red fox ran", "fox", "red fox ran")
    windows = one_window(item, wordpiece())
    first, last = windows.contexts[0]
    start, end = np.zeros((2, 1, windows.lengths[0]))
    start[0, :first] = end[0, last:] = 9.0  # question and special tokens are most likely, and have to be passed over
    start[0, first + 1], start[0, last - 1] = 2.0, 3.0
    end[0, first] = 2.5
    options = {"n_best": 20, "max_answer_length": 10}
    assert best_answers(windows, [item], start, end, **options) == {"q": "ran"}
    end[0, first + 1] = 1.5
    assert best_answers(windows, [item], start, end, **options) == {"q": "fox"}
    assert best_answers(windows, [item], start, end, n_best=1, max_answer_length=10) == {"q": ""}


def test_logits_that_are_not_numbers_give_an_empty_answer() -> None:
    item = example("red fox ran", "fox")
    windows = one_window(item, wordpiece())
    logits = np.full((1, windows.lengths[0]), np.nan)
    assert best_answers(windows, [item], logits, logits, n_best=5, max_answer_length=5) == {"q": ""}


def test_logits_of_other_windows_are_refused() -> None:
    item = example("red fox ran", "fox")
    with pytest.raises(ValueError, match="1 windows, but 2 start and 1 end logits"):
        best_answers(
            one_window(item, wordpiece()), [item], np.ones((2, 9)), np.ones((1, 9)), n_best=5, max_answer_length=5
        )
