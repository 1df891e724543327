"""Pairs and answers that a generator writes: their places, and what is left out."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rl_qg.generation.end_to_end import generate_pairs, place_of
from rl_qg.generation.generator import Candidate, CandidateGenerator
from rl_qg.generation.prompts import Prompt, add_highlight
from rl_qg.generation.propose_answers import GeneratedAnswers, load_generated_answers
from rl_qg.generation.tasks import join_answers, join_pairs, task_rows
from rl_qg.runtime.errors import InputError
from tests.questions import example
from tests.tiny_models import byte_tokenizer, save, tiny_bart

CONTEXT = "Ada met Ben in Rome. Ben died in Rome in 1900."
ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


@pytest.mark.parametrize(
    ("question", "taken", "start"),
    [
        ("Where did Ada meet Ben?", set(), 15),
        ("Where has Ben died?", set(), 33),
        ("Where?", set(), 15),
        ("Where?", {15}, 33),
        ("Where did Ada meet Ben?", {15}, 33),  # the better place is taken
        ("Where has Ada been?", {15, 33}, 15),  # both are
    ],
)
def test_an_answer_that_stands_several_times_is_placed_by_its_question(
    question: str, taken: set[int], start: int
) -> None:
    assert place_of(question, "Rome", CONTEXT, taken) == (start, start + 4)


def test_an_answer_that_is_not_there_has_no_place() -> None:
    assert place_of("Where?", "Paris", CONTEXT, set()) is None


class Written:
    """Stands for a generator of pairs that writes given texts.

    Its vocabulary is that of `tiny` below; each token has log-probability -1.
    """

    def __init__(self, folder: Path, texts: list[str]) -> None:
        self.real = CandidateGenerator(folder, device=torch.device("cpu"))
        self.task, self.tokenizer, self.encoder = self.real.task, self.real.tokenizer, self.real.encoder
        self.texts = texts
        self.decoder = SimpleNamespace(search=self.search, token_logprobs=self.token_logprobs, end=END)

    def batch(self, rows: Any) -> dict[str, torch.Tensor]:
        return self.real.batch(rows)

    def search(self, batch: Any, beams: int, longest: int) -> tuple[torch.Tensor, None]:
        rows = [self.tokenizer(text)["input_ids"] + [END] for text in self.texts]
        width = max(map(len, rows))
        padded = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
        return padded.repeat_interleave(beams, 0)[:, :longest], None

    def token_logprobs(self, batch: Any, tokens: torch.Tensor) -> torch.Tensor:
        ended = (tokens == END).cumsum(-1) - (tokens == END).int() > 0
        return -(~ended).float()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    tokenizer = byte_tokenizer([CONTEXT], ROLES)
    model = tiny_bart(len(tokenizer), positions=256, pad_token_id=PAD, eos_token_id=END, decoder_start_token_id=END)
    add_highlight(tokenizer, model, "pairs")
    save(folder, tokenizer, model)
    Prompt(task="pairs", max_source_length=200).save(folder)
    return folder


END, PAD = 1, 2


def test_pairs_have_true_places_and_what_is_left_out_is_counted(tiny: Path) -> None:
    texts = [
        join_pairs(
            [
                ("Where did Ada meet Ben?", "Rome"),
                ("Where did he die?", "Rome"),
                ("Who?", "Carl"),
                ("", "Ben"),
                ("Where did he die?", "Rome"),
            ]
        ),
        "",
    ]
    first, second = generate_pairs(Written(tiny, texts), [CONTEXT, "Nothing."])  # type: ignore[arg-type]
    assert [(pair.answer, pair.answer_start) for pair in first] == [("Rome", 15), ("Rome", 33)]
    assert first.dropped == {"answer not in the text": 1, "incomplete": 1, "repeated": 1}
    assert second == [] and second.dropped == {}
    tokenizer = CandidateGenerator(tiny, device=torch.device("cpu")).tokenizer
    first_tokens = tokenizer(texts[0].partition("<pair>")[0] + "<pair>")["input_ids"]
    assert first[0].logprob == -len(first_tokens) == -first[0].tokens  # with the separator after the pair


def test_a_pair_that_is_cut_off_is_left_out(tiny: Path) -> None:
    text = join_pairs([("Who?", "Ada"), ("When did Ben die?", "1900")])
    whole = len(CandidateGenerator(tiny, device=torch.device("cpu")).tokenizer(text)["input_ids"])
    (pairs,) = generate_pairs(Written(tiny, [text]), [CONTEXT], max_new_tokens=whole - 1)  # type: ignore[arg-type]
    assert [pair.answer for pair in pairs] == ["Ada"] and pairs.dropped == {"incomplete": 1}


def test_logprobs_of_pairs_add_up_to_that_of_the_text(tiny: Path) -> None:
    """The token values of both kinds of pass agree with the beam search's own sum."""
    generator = CandidateGenerator(tiny, device=torch.device("cpu"))
    (row,) = task_rows("pairs", [example(CONTEXT, "Ada", "Who?")])
    with torch.inference_mode():
        batch = generator.batch([row])
        tokens, logprobs = generator.decoder.search(batch, 3, 12)
        values = generator.decoder.token_logprobs(batch, tokens[:1])
    assert float(values.sum()) == pytest.approx(float(logprobs[0]), abs=1e-4)
    assert generate_pairs(generator, []) == []


def test_a_generator_of_questions_is_refused(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer([CONTEXT], ROLES)
    save(tmp_path, tokenizer, tiny_bart(len(tokenizer)))
    generator = CandidateGenerator(tmp_path, device=torch.device("cpu"))
    with pytest.raises(InputError, match=r"trained with model\.task=questions, and cannot write pairs"):
        generate_pairs(generator, [CONTEXT])
    with pytest.raises(InputError, match=r"cannot propose answers"):
        GeneratedAnswers(generator, 5)
    with pytest.raises(InputError, match=r"answers\.generator has no value"):
        load_generated_answers("", 5, device=torch.device("cpu"))


class Writes:
    """Stands for a generator of answers: what it writes about each sentence, with a log-probability."""

    task = "multitask"

    def __init__(self, texts: dict[str, tuple[str, float]], tokens: int = 0) -> None:
        self.texts, self.tokens = texts, tokens

    def candidates(self, rows: Any, count: int, **options: Any) -> list[list[Candidate]]:
        found = [self.texts[row.answers[0].text] for row in rows]
        return [[Candidate(text, logprob, self.tokens), Candidate("Ben", -9.0)] for text, logprob in found]


def test_answers_stand_in_the_sentence_that_was_marked() -> None:
    writes = {
        "Ada met Ben in Rome.": (join_answers(["Ada", "1900"]), -1.0),
        "Ben died in Rome in 1900.": (join_answers(["Rome", "1900"]), -0.5),
    }
    propose = GeneratedAnswers(Writes(writes), None, rows=1)  # type: ignore[arg-type]
    (spans,) = propose([CONTEXT])
    assert [(span.start, span.end, span.kind) for span in spans] == [
        (33, 37, "generated"),
        (41, 45, "generated"),
        (0, 3, "generated"),
    ]
    assert [span.score for span in spans] == pytest.approx([math.exp(-0.5)] * 2 + [math.exp(-1)])
    assert propose.left_out == 1
    assert [len(found) for found in GeneratedAnswers(Writes(writes), 1)([CONTEXT, CONTEXT])] == [1, 1]  # type: ignore[arg-type]


def test_an_answer_that_the_longest_text_has_cut_is_left_out_and_counted() -> None:
    cut, after_one = join_answers(["Ben", "Rom"]), "Ben <answer>"  # "Rom" stands in "Rome"
    cases = ((cut, 63, ["Ben", "Rom"], 0), (cut, 64, ["Ben"], 1), (after_one, 64, ["Ben"], 1))
    for text, tokens, expected, left_out in cases:
        propose = GeneratedAnswers(Writes({"Ben died in Rome.": (text, -1.0)}, tokens), None)  # type: ignore[arg-type]
        (spans,) = propose(["Ben died in Rome."])
        assert (["Ben died in Rome."[span.start : span.end] for span in spans], propose.left_out) == (
            expected,
            left_out,
        )
