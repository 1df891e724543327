"""The keyphrase predictor: what it learns from, training on a toy task, the command, and the metrics that use it."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from transformers import AutoTokenizer, BertModel, DistilBertModel

from rewards import KPQA, MetricInputError
from rl_qg.commands.cli import run_command
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.readers.encoders import IGNORED
from rl_qg.readers.fine_tuning import FineTuning
from rl_qg.readers.kpqa import KEYPHRASE, OTHER, KeyphraseItems, answered_sentence, train_predictor
from rl_qg.runtime.errors import InputError, Terminated
from rl_qg.runtime.trainer_base import Preemption
from rl_qg.settings import QAModelSettings, TrainKPQASettings
from tests.questions import example
from tests.tiny_models import save, tiny
from tests.toy_reader import FILLER, KINDS, toy_tokenizer

SENTENCES = "Ida Koll built it. The mill stands on the Esk!  It burned in 1204, they say."


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Ida", "Ida Koll built it."),
        ("the Esk", "The mill stands on the Esk!"),
        ("1204", "It burned in 1204, they say."),
        ("it. The mill", "Ida Koll built it. The mill stands on the Esk!"),  # crosses an end: both
    ],
)
def test_the_sentence_of_an_answer(answer: str, text: str) -> None:
    evaluated = answered_sentence(example(SENTENCES, answer, "?"))
    assert evaluated.text == text
    assert evaluated.text[evaluated.start : evaluated.end] == answer


WORDS = st.lists(st.sampled_from(["fox", "ran.", "The", "sea", "is", "blue!", "old", "horse", "?"]), min_size=1)


@given(WORDS, st.data())
def test_any_answer_is_in_its_sentence(words: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    context, answer = " ".join(words), " ".join(words[first : last + 1])
    start = len(" ".join(words[:first])) + (first > 0)
    evaluated = answered_sentence(QAExample("x", "", context, "?", (Answer(answer, start),)))
    assert evaluated.text in context and evaluated.text[evaluated.start : evaluated.end] == answer


def test_labels_by_hand_and_examples_left_out() -> None:
    tokenizer = toy_tokenizer()
    context = "the old horse saw paris"
    rows = [
        example(context, "old horse", "which animal ?", "a"),
        example(context, "paris", " ", "unasked"),
        example(context, "paris", "which city ?", "cut"),
    ]
    items = KeyphraseItems(rows, tokenizer, max_length=7)
    assert (len(items), items.without_question, items.without_answer) == (1, 1, 1)
    # [CLS] [SEP] the old horse saw [SEP]: the sentence keeps its four tokens, the question gets the room that is left
    assert tokenizer.convert_ids_to_tokens(items[0]["input_ids"]) == "[CLS] [SEP] the old horse saw [SEP]".split()
    assert items[0]["labels"] == [IGNORED, IGNORED, OTHER, KEYPHRASE, KEYPHRASE, OTHER, IGNORED]
    assert items[0]["token_type_ids"] == [1, 0, 1, 1, 1, 1, 1]  # the released code's segments
    [close] = KeyphraseItems([example("a(a)!", "a", "?", start=2)], tokenizer, max_length=32)
    assert close["labels"][-6:] == [
        OTHER,
        OTHER,
        KEYPHRASE,
        OTHER,
        OTHER,
        IGNORED,
    ]  # a ( a ) !: only the tokens of the answer
    whole = KeyphraseItems(rows, tokenizer, max_length=32)
    assert (len(whole), whole.without_answer) == (2, 0)
    tokens = tokenizer.convert_ids_to_tokens(whole[1]["input_ids"])
    assert tokens == "[CLS] which city ? [SEP] the old horse saw paris [SEP]".split()


def test_labels_of_the_sentence_alone() -> None:
    """A row without a question can be used too; a long sentence is cut as in the metric."""
    tokenizer, context = toy_tokenizer(), "the old horse saw paris"
    rows = [example(context, "old horse", "which animal ?", "a"), example(context, "paris", " ", "unasked")]
    items = KeyphraseItems(rows, tokenizer, max_length=32, question=False)
    assert (len(items), items.without_question, items.without_answer) == (2, 0, 0)
    for item, labels in zip(
        items, ([OTHER, KEYPHRASE, KEYPHRASE, OTHER, OTHER], [OTHER] * 4 + [KEYPHRASE]), strict=True
    ):
        assert tokenizer.decode(item["input_ids"]) == "[CLS] the old horse saw paris [SEP]"
        assert item["labels"] == [IGNORED, *labels, IGNORED]
        assert item["token_type_ids"] == [0] * 7
    cut = KeyphraseItems(rows, tokenizer, max_length=7, question=False)
    assert (len(cut), cut.without_question, cut.without_answer) == (1, 0, 1)


# --- Training ---


def toy(count: int, seed: int) -> list[QAExample]:
    """Two sentences with a phrase of each kind in either; the question's kind says which phrase of its sentence."""
    rng, rows = random.Random(seed), []
    for number in range(count):
        kind = rng.choice(list(KINDS))
        pieces = [*(rng.choice(phrases) for phrases in KINDS.values()), *rng.choices(FILLER, k=3)]
        rng.shuffle(pieces)
        answer = next(piece for piece in pieces if piece in KINDS[kind])
        start = len(" ".join(pieces[: pieces.index(answer)]))
        answers = (Answer(answer, start + (start > 0)),)
        rows.append(QAExample(f"{seed}-{number}", "", " ".join(pieces), f"which {kind} ?", answers))
    return rows


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A BERT (with segments) and a DistilBERT (without)."""
    root, tokenizer = tmp_path_factory.mktemp("encoders"), toy_tokenizer()
    models = {
        "bert": tiny(BertModel, len(tokenizer), hidden=48, layers=2, heads=4, spread=0.1),
        "distilbert": tiny(DistilBertModel, len(tokenizer), spread=0.02),
    }
    return {name: Path(save(root / name, tokenizer, model)) for name, model in models.items()}


def settings(encoder: Path, **changes: object) -> TrainKPQASettings:
    chosen = TrainKPQASettings(
        model=QAModelSettings(str(encoder)),
        max_steps=150,
        learning_rate=5e-3,
        batch_size=16,
        save_steps=25,
        max_length=32,
    )
    return replace(chosen, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trained(encoders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    options = {"settings": settings(encoders["bert"]), "output_dir": folder, "seed": 3, "use_cpu": True}
    train_predictor(toy(300, 1), toy(40, 2), FineTuning(**options))  # type: ignore[arg-type]
    return folder


@pytest.mark.slow
def test_it_learns_which_words_answer_the_question(trained: Path) -> None:
    evaluated = json.loads((trained / "kpqa_metrics.json").read_text())
    assert evaluated["f1"] > 0.9 and evaluated["precision"] > 0.9 and evaluated["recall"] > 0.9
    tokens = evaluated["tokens"]
    assert evaluated["f1"] == pytest.approx(2 * tokens["both"] / (tokens["keyphrase"] + tokens["predicted"]))
    assert evaluated["examples"]["validation"] == {"used": 40, "without_question": 0, "without_answer": 0}
    assert not list(trained.glob("checkpoint-*")) and not (trained / "model.part").exists()


@pytest.mark.slow
def test_the_metrics_weigh_by_the_question(trained: Path) -> None:
    """The same answer and reference: what counts is what was asked for."""
    text, reference = "the fox saw paris", "the fox saw rome"
    metric = KPQA(str(trained), "bleu1")
    got = metric.score([text] * 2, ["which animal ?", "which city ?"], references=[[reference]] * 2)
    assert got.scores[0] > 0.9 and got.scores[1] < 0.1
    weights = dict(zip(text.split(), got.parts["weights"][0], strict=True))
    assert max(weights, key=lambda word: weights[word]) == "fox"
    with pytest.raises(MetricInputError, match="was trained with questions"):
        KPQA(str(trained), "bleu1", condition="none")


@pytest.mark.slow
def test_without_the_question_it_learns_what_answers_look_like(encoders: dict[str, Path], tmp_path: Path) -> None:
    """The ablation -KP: every answer is an animal, most questions are unknown, and what is asked changes no weight."""

    def train(name: str, question: str, steps: int) -> bytes:
        animals = [row for row in toy(300, 1) if "animal" in row.question]
        rows = [replace(row, question="" if at % 3 else question) for at, row in enumerate(animals)]
        alone = settings(encoders["bert"], max_steps=steps, question=False)
        evaluated = train_predictor(rows, rows[:40], FineTuning(alone, tmp_path / name, seed=3, use_cpu=True))
        assert evaluated["examples"]["train"] == {"used": len(rows), "without_question": 0, "without_answer": 0}
        if steps > 3:
            assert evaluated["f1"] > 0.9
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert train("one", "which animal ?", 3) == train("other", "where ?", 3)
    train("learnt", "which animal ?", 60)
    assert json.loads((tmp_path / "learnt" / "config.json").read_text())["reads_question"] is False
    metric = KPQA(str(tmp_path / "learnt"), "bleu1", condition="none")
    [weights] = metric.weights(["the fox saw paris"])
    assert [token for token, weight in weights if weight >= 0.5] == ["fox"]
    with pytest.raises(MetricInputError, match="was trained without questions"):
        KPQA(str(tmp_path / "learnt"), "bleu1")


@pytest.mark.slow
def test_a_stopped_training_goes_on_to_the_same_weights(
    encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Preemption.on_step_end

    def stop(self: Preemption, args: object, state: object, control: object, **kwargs: object) -> None:
        self.signalled = state.global_step == 3  # type: ignore[attr-defined]
        original(self, args, state, control, **kwargs)  # type: ignore[arg-type]

    def train(name: str) -> bytes:
        few = settings(encoders["distilbert"], max_steps=6)  # also: an encoder without segments
        train_predictor(toy(40, 1), toy(8, 2), FineTuning(few, tmp_path / name, seed=3, use_cpu=True))
        return (tmp_path / name / "model.safetensors").read_bytes()

    whole = train("whole")
    monkeypatch.setattr(Preemption, "on_step_end", stop)
    with pytest.raises(Terminated):
        train("stopped")
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "stopped").glob("checkpoint-*")] == ["checkpoint-3"]
    assert train("stopped") == whole
    before = (tmp_path / "stopped" / "kpqa_metrics.json").read_text()
    monkeypatch.setattr("rl_qg.readers.kpqa.load_model", lambda path: pytest.fail("trained again"))
    assert train("stopped") == whole
    assert (tmp_path / "stopped" / "kpqa_metrics.json").read_text() == before


def test_unusable_examples_and_settings_are_one_line(encoders: dict[str, Path], tmp_path: Path) -> None:
    def fault(train: list[QAExample], **changes: object) -> str:
        with pytest.raises(InputError) as error:
            chosen = settings(encoders["bert"], **changes)
            train_predictor(train, toy(2, 0), FineTuning(chosen, tmp_path, seed=0, use_cpu=True))
        assert "\n" not in str(error.value)
        return str(error.value)

    unasked = replace(toy(1, 0)[0], question="")
    assert "data.train: none of 1 examples can be used (1 without a question" in fault([unasked])
    assert "max_length=128 is above the 64 tokens" in fault(toy(2, 0), max_length=128)
    assert "no such folder" in fault(toy(2, 0), model=QAModelSettings("/no/model"))


@pytest.mark.slow
def test_the_command_trains_and_its_folder_is_a_reward(encoders: dict[str, Path], tmp_path: Path) -> None:
    """`rl-qg train-kpqa` and `rl-qg score reward=kpqa`, as a user types them."""
    write_squad(tmp_path / "train.json", toy(24, 1))
    write_squad(tmp_path / "dev.json", toy(8, 2))
    arguments = [
        *(f"data.train={tmp_path / 'train.json'}", f"data.validation={tmp_path / 'dev.json'}"),
        *(f"model.path={encoders['distilbert']}", "max_steps=2", "max_length=32", "batch_size=4"),
        *("training.use_cpu=true", f"output_dir={tmp_path / 'kpqa'}"),
    ]
    run_command("train-kpqa", arguments)
    record = json.loads((tmp_path / "kpqa" / "run.json").read_text())
    assert len(record["data"]) == 2
    dev = toy(8, 2)  # a word a token, a sentence a passage: what the file counts can be counted by words
    metric = KPQA(str(tmp_path / "kpqa"), "bleu1").score(
        [row.context for row in dev], [row.question for row in dev], references=[["the"]] * len(dev)
    )
    weighted = [[weight >= 0.5 for weight in weights] for weights in metric.parts["weights"]]
    firsts = [len(row.context[: row.answers[0].start].split()) for row in dev]
    marked = [
        set(range(first, first + len(row.answers[0].text.split()))) for first, row in zip(firsts, dev, strict=True)
    ]
    evaluated = json.loads((tmp_path / "kpqa" / "kpqa_metrics.json").read_text())
    both = sum(row[token] for row, indices in zip(weighted, marked, strict=True) for token in indices)
    counts = {"all": sum(map(len, weighted)), "keyphrase": sum(map(len, marked)), "predicted": sum(map(sum, weighted))}
    assert evaluated["tokens"] == {**counts, "both": both}
    assert counts["predicted"] not in (0, counts["keyphrase"])
    assert evaluated["precision"] == pytest.approx(both / counts["predicted"])
    assert evaluated["recall"] == pytest.approx(both / counts["keyphrase"])
    with pytest.raises(InputError, match="other settings"):
        run_command("train-kpqa", [*arguments, "learning_rate=1e-3"])
    with pytest.raises(InputError, match=r"other settings \(train_kpqa\.question: True -> False\)"):
        run_command("train-kpqa", [*arguments, "question=false"])
    run_command("train-kpqa", [*arguments, "question=false", f"output_dir={tmp_path / 'alone'}"])
    configs = {name: json.loads((tmp_path / name / "config.json").read_text()) for name in ("kpqa", "alone")}
    assert {name: config["reads_question"] for name, config in configs.items()} == {"kpqa": True, "alone": False}
    answers = [{"question": "the fox", "context": "which animal ?", "references": ["the old fox", "a fox"]}]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in answers))
    scored = tmp_path / "scored.jsonl"
    reward = ["reward=kpqa", f"reward.model={tmp_path / 'kpqa'}", "reward.metric=rouge_l", "training.use_cpu=true"]
    run_command("score", [*reward, f"input={tmp_path / 'answers.jsonl'}", f"output={scored}"])
    row = json.loads(scored.read_text())
    want = KPQA(str(tmp_path / "kpqa"), "rouge_l").score(
        ["the fox"], ["which animal ?"], references=[["the old fox", "a fox"]]
    )
    assert row["score"] == pytest.approx(want.scores[0], abs=1e-6)
    assert len(row["parts"]["weights"]) == len(AutoTokenizer.from_pretrained(tmp_path / "kpqa").tokenize("the fox"))
