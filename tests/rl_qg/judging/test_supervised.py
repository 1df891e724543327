"""Classifiers trained in folds: what each sees, what it learns, and what is kept."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from experiments.robustness.classifiers import UNKNOWN, Classifier, DecAtt, DecomposableAttention, Encoder, Vocabulary
from rl_qg.commands.cli import run_command
from rl_qg.judging.alterations import ORIGINAL, PARAPHRASE, AlteredQuestion
from rl_qg.judging.robustness import TrainedInFolds
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import MetricRow
from tests.toy_metrics import write_lines

CLASSES = "experiments.robustness.classifiers"
THINGS = "bell coat door fish gate hall lamp moon nest oven pond road seed tree wall yard".split()


def questions(passages: int = 10) -> tuple[list[AlteredQuestion], list[str]]:
    """Of each passage a question as it was, two paraphrases and two negated questions; and their passages."""
    made, groups = [], []
    for number in range(passages):
        thing, other = THINGS[number % 16], THINGS[(number + 3) % 16]
        texts = [(ORIGINAL, f"Where is the {thing}?"), (PARAPHRASE, f"In what place is the {thing}?")]
        texts += [(PARAPHRASE, f"At which place is the {thing}?"), ("negation", f"Where isn't the {thing}?")]
        texts += [("negation", f"In what place isn't the {other}?")]
        for kind, text in texts:
            row = MetricRow("here", text, f"The {thing} is in Lorn {number}.", "Lorn", (f"Where is the {thing}?",))
            made.append(AlteredQuestion(number, kind, row, {}))
            groups.append(f"passage {number}")
    return made, groups


def train(folder: Path, kind: Callable[..., Classifier], passages: int = 10, **options: Any) -> TrainedInFolds:
    made, groups = questions(passages)
    given = {"folds": 2, "epochs": 12, "batch_size": 8, "max_length": 48, **options}
    return kind(**given).train_in_folds("label", made, groups, folder, seed=0, use_cpu=True)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(DecAtt, {"learning_rate": 5e-3}), (Encoder, {"model": str(SHIPPED / "bert"), "learning_rate": 2e-3})],
)
def test_a_negation_is_learned_from_other_passages(tmp_path: Path, kind: Any, options: dict[str, Any]) -> None:
    trained = train(tmp_path, kind, **options)
    assert min(trained.areas) > 0.9
    made, _ = questions()
    assert np.isfinite(trained.scores).all() and len(trained.scores) == len(made)
    again = train(tmp_path / "again", kind, **options)
    assert np.array_equal(trained.scores, again.scores)


class Recorder(Classifier):
    """Notes in `log` the pairs it is trained on and asked for, and gives each the number of its words."""

    log: ClassVar[list[Any]] = []

    def load(self, pairs: Any, device: torch.device) -> None:
        self.network = torch.nn.Linear(1, 2)
        self.log.append({"train": set(pairs), "asked": []})

    def logits(self, pairs: Any) -> torch.Tensor:
        self.log[-1]["asked"] += [] if self.network.training else pairs
        words = torch.tensor([[0.0, float(len(question.split()))] for question, _ in pairs])
        return words + 0 * self.network(torch.ones(len(pairs), 1))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(Recorder, "log", [])
    return Recorder.log


def test_no_passage_is_in_training_and_scored_and_originals_are_not_trained_on(tmp_path: Path, log: list[Any]) -> None:
    trained = train(tmp_path, Recorder, folds=5)
    made, _ = questions()
    assert len(log) == 5 and sum(len(fold["asked"]) for fold in log) == len(made)
    originals = {question.row.question for question in made if question.kind == ORIGINAL}
    for fold in log:
        assert not {text for text, _ in fold["train"]} & originals
        assert not {context for _, context in fold["train"]} & {context for _, context in fold["asked"]}
        assert len(fold["train"]) + len([text for text, _ in fold["asked"] if text not in originals]) == 40
    assert trained.scores.tolist() == [len(question.row.question.split()) for question in made]
    # Paraphrases have 6 words; of negated ones half have 4 and half have 6: 1/2 above, 1/2 tied = 0.75.
    assert trained.areas == pytest.approx([0.75] * 5)
    assert train(tmp_path, Recorder, folds=5).areas == trained.areas and len(log) == 5  # nothing is trained again


def test_a_kill_costs_one_fold(tmp_path: Path, log: list[Any]) -> None:
    whole = train(tmp_path, Recorder, passages=11, folds=5)  # the folds are not of equal size
    path = tmp_path / "scores" / "supervised-label.jsonl"
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept[:4]))  # its note and three folds
    assert train(tmp_path, Recorder, passages=11, folds=5).areas == whole.areas and len(log) == 5 + 2


def test_other_weights_in_the_same_folder_are_trained_again(tmp_path: Path, log: list[Any]) -> None:
    weights = tmp_path / "encoder" / "model.safetensors"
    weights.parent.mkdir()
    for number, content in enumerate(["first", "second"], 1):
        weights.write_text(content)
        train(tmp_path, Recorder, model=str(weights.parent))
        assert len(log) == 2 * number


def test_training_that_diverges_is_one_line(tmp_path: Path) -> None:
    message = r"robustness.supervised: label: training has diverged in fold 1 .*lower learning_rate="
    with pytest.raises(InputError, match=message):
        train(tmp_path, DecAtt, epochs=2, learning_rate=1e20)


@pytest.mark.parametrize(
    ("reads", "second"),
    [
        ("context", "The bell is in Lorn 0."),
        ("reference", "Where is the bell?"),
        ("both", "Where is the bell?\nThe bell is in Lorn 0."),
    ],
)
def test_what_a_question_is_read_with(tmp_path: Path, log: list[Any], reads: str, second: str) -> None:
    train(tmp_path, Recorder, reads=reads)
    assert ("Where isn't the bell?", second) in log[0]["train"] | log[1]["train"]


def test_unusable_classifiers_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reads is one of context, reference, both"):
        DecAtt(reads="answer")
    with pytest.raises(InputError, match="folds=5: fold 4 of passages has no paraphrase, or no wrong question"):
        train(tmp_path, DecAtt, passages=3, folds=5)
    with pytest.raises(InputError, match=r"robustness.supervised=.*no such folder"):
        train(tmp_path, Encoder, model=str(tmp_path / "no_such"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("supervised=[decatt]", "robustness.supervised=decatt: cannot be imported"),
        ("supervised=[experiments.robustness.classifiers.Diin]", "supervised=experiments.*cannot be imported"),
        ("supervised=[{_target_: experiments.robustness.classifiers.DecAtt, depth: 2}]", "unexpected keyword .*depth"),
        ("supervised=[a.Encoder,b.Encoder]", "there is a metric 'Encoder' already; give this one another label"),
        ("paraphraser={languages: [fr]}", "robustness.paraphraser=: cannot be imported"),
    ],
)
def test_unusable_dotted_paths_are_one_line(tmp_path: Path, given: str, message: str) -> None:
    source = write_lines(tmp_path / "in.jsonl", [{"question": "Who?", "context": "Ada."}])
    with pytest.raises(InputError, match=message) as error:
        run_command("robustness", [f"input={source}", "metrics=[rouge_l]", f"output={tmp_path}/out", given])
    assert "\n" not in str(error.value)


def test_decomposable_attention_by_hand() -> None:
    """The logits of one pair, word by word, as the paper's equations 1 to 5 have them; padding changes nothing."""
    torch.manual_seed(0)
    model = DecomposableAttention(130).eval().requires_grad_(False)
    first, second = torch.tensor([[105, 106, 107]]), torch.tensor([[107, 108]])
    a, b = (model.project(model.embedding(words[0])) for words in (first, second))
    e = [[float(model.attend(x) @ model.attend(y)) for y in b] for x in a]
    beta = [sum(torch.tensor(row).softmax(0)[j] * b[j] for j in range(2)) for row in e]
    columns = [torch.tensor([row[j] for row in e]).softmax(0) for j in range(2)]
    alpha = [sum(column[i] * a[i] for i in range(3)) for column in columns]
    v1 = sum(model.compare(torch.cat([a[i], beta[i]])) for i in range(3))
    v2 = sum(model.compare(torch.cat([b[j], alpha[j]])) for j in range(2))
    expected = model.aggregate(torch.cat([v1, v2]))
    assert torch.allclose(model(first, second)[0], expected, atol=1e-5)
    padded = torch.nn.functional.pad(first, (0, 2)), torch.nn.functional.pad(second, (0, 3))
    assert torch.allclose(model(*padded)[0], expected, atol=1e-5)


def test_words_of_the_training_texts_and_others() -> None:
    vocabulary = Vocabulary(["Who isn't it?", "It isn't", "once"])
    known, unknown = vocabulary.numbers(["It isn't once", ""], 3)
    assert len(vocabulary) == 1 + UNKNOWN + 2
    assert sorted(known[:2].tolist()) == [1 + UNKNOWN, 2 + UNKNOWN] and 1 <= known[2] <= UNKNOWN
    assert unknown.tolist() == [1, 0, 0]
    assert vocabulary.numbers(["it it it it"], 3).shape == (1, 3)


def test_the_command_trains_miniatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    rows = [
        {"question": f"How many people saw the {thing}?", "context": f"In Lorn {number} they saw the {thing}."}
        for number, thing in enumerate(THINGS)
    ]
    source = write_lines(tmp_path / "in.jsonl", rows)
    arguments = [f"input={source}", f"output={tmp_path}/out", "kinds=[negation]", "resamples=40", "spacy_model=''"]
    few = "folds: 2, epochs: 2"
    given = (f"{{_target_: {CLASSES}.{name}, {few}}}" for name in ("Encoder, model: miniature:bert", "DecAtt"))
    arguments.append(f"supervised=[{', '.join(given)}]")
    run_command("robustness", [*arguments, "preset=smoke", "training.use_cpu=true"])
    record = json.loads((tmp_path / "out" / "robustness.json").read_text())
    assert [row["metric"] for row in record["results"]] == ["Encoder", "DecAtt"]
    for row, areas in zip(record["results"], record["supervised"], strict=True):
        assert 0 <= row["paraphrase"]["value"] <= 1 and row["paraphrase"]["n"] == 32
        assert row["original"]["value"] is not None
        assert areas["mean"] == pytest.approx(sum(areas["folds"]) / 2) and len(areas["folds"]) == 2
    assert "Classifiers in each fold" in (tmp_path / "out" / "robustness.txt").read_text(encoding="utf-8")
