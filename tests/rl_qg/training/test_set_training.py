"""Training on sets of questions by cross-entropy: every strategy is learned, resumed, and refused where it must be."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_qg.commands.training import check_generator
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.splits import Splits
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_generator
from rl_qg.generation.sets import question_parts, question_pool, set_rows, units_of
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AskSettings, CESettings, ModelSettings, Settings, TrainingSettings
from rl_qg.training.stages import in_task, train
from tests.rl_qg.training.word_task import WORDS
from tests.tiny_models import save, tiny_bart, tiny_t5, word_tokenizer


def data(passages: int) -> list[QAExample]:
    """Two questions about the first sentence of each passage and one about the second."""
    examples = []
    for k in range(passages):
        words = [f"w{(3 * k + j) % 20}" for j in range(6)]
        context = " ".join(words[:3]) + " .\n\n" + " ".join(words[3:])
        for number, word in enumerate((words[0], words[1], words[4])):
            start = (Answer(word, context.index(word)),)
            examples.append(QAExample(f"e{k}-{number}", "", context, f"{('who', 'why')[number % 2]} {word}", start))
    return examples


SPLITS = Splits(data(4), [], data(4))


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, tokenizer = tmp_path_factory.mktemp("start"), word_tokenizer(f"{WORDS} . who why")
    models = {
        "bart": tiny_bart(len(tokenizer), seed=1, positions=96, hidden=32),
        "t5": tiny_t5(len(tokenizer), seed=1),
    }
    return {name: save(folder / name, tokenizer, model) for name, model in models.items()}


def settings(folder: Path, start: str, granularity: str, mode: str, order: str = "position", **rest: Any) -> Settings:
    return Settings(
        output_dir=str(folder),
        stages="ce",
        ask=AskSettings(granularity=granularity, mode=mode, order=order),
        model=ModelSettings(start, max_source_length=48, max_target_length=24),
        training=TrainingSettings(
            batch_size=4, logging_steps=5, eval_steps=5, eval_samples=4, save_steps=5, use_cpu=True, report_to="none"
        ),
        **{"ce": CESettings(epochs=3, learning_rate=1e-2), **rest},
    )


def evaluations(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["eval_loss"] for line in lines if "eval_loss" in line]


def test_a_generator_learns_the_sets_of_its_units(tmp_path: Path, starts: dict[str, str]) -> None:
    chosen = settings(tmp_path, starts["bart"], "type", "one2many", ce=CESettings(epochs=60, learning_rate=1e-2))
    chosen.training.batch_size, chosen.training.eval_steps = 3, 60
    final = train(chosen, replace(SPLITS, gold=data(1)), None)
    prompt = json.loads((final / "prompt.json").read_text())
    assert (prompt["task"], prompt["granularity"], prompt["mode"]) == ("sets", "type", "one2many")
    generator = CandidateGenerator(final, device=torch.device("cpu"))
    rows = set_rows("type", "one2many", data(1))
    pools = question_pool(generator, [row.unit for row in rows if row.unit])
    found = [[question.question for question in pool] for pool in pools]
    # The units of a sentence differ in their type alone, so the type is read.
    assert found == [question_parts(row.question) for row in rows]


def test_t5_gets_its_prefix(tmp_path: Path, starts: dict[str, str]) -> None:
    final = train(settings(tmp_path, starts["t5"], "sentence", "one2one"), SPLITS, None)
    assert json.loads((final / "prompt.json").read_text())["prefix"] == "generate questions: "
    losses = evaluations(tmp_path)
    assert losses[-1] < losses[0]
    generator = CandidateGenerator(final, device=torch.device("cpu"))
    assert len(question_pool(generator, units_of(SPLITS.gold[0].context, "sentence"), candidates=3)) == 2


def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path: Path, starts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rl_qg.training.trainer import SelfCriticalTrainer

    make = lambda name: settings(tmp_path / name, starts["bart"], "sentence", "one2one", "shuffle")  # noqa: E731
    whole = train(make("whole"), SPLITS, None)
    update = SelfCriticalTrainer.training_step

    class Kill(Exception):
        pass

    def step(self: SelfCriticalTrainer, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.state.global_step == 7:
            raise Kill
        return update(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(SelfCriticalTrainer, "training_step", step)
        with pytest.raises(Kill):
            train(make("cut"), SPLITS, None)
    cut = train(make("cut"), SPLITS, None)
    first, second = (load_generator(str(folder))[0] for folder in (whole, cut))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_order_of_the_model_needs_a_model_that_writes_sets(tmp_path: Path, starts: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"ask\.order=best: model\.path has not learned"):
        train(settings(tmp_path / "a", starts["bart"], "paragraph", "one2many", "best"), SPLITS, None)
    final = train(settings(tmp_path / "b", starts["bart"], "paragraph", "one2many"), SPLITS, None)
    again = in_task(settings(tmp_path / "c", str(final), "paragraph", "one2many", "best"), SPLITS)
    rows = set_rows("paragraph", "one2many", SPLITS.gold)
    assert [sorted(question_parts(row.question)) for row in again.gold] == [
        sorted(question_parts(row.question)) for row in rows
    ]


@pytest.mark.parametrize("algorithm", ["best_of_n", "grpo", "rloo"])
def test_other_algorithms_are_refused(tmp_path: Path, starts: dict[str, str], algorithm: str) -> None:
    chosen = replace(settings(tmp_path, starts["bart"], "sentence", "one2many"), algorithm=algorithm)
    with pytest.raises(InputError, match=rf"model\.task=sets: algorithm={algorithm} trains models that write"):
        check_generator(chosen)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InputError, match=r"model\.task=sets: ask\.granularity has no value"):
        Settings(model=ModelSettings("x", task="sets")).check()
    with pytest.raises(InputError, match=r"model\.task=pairs: ask\.granularity=sentence is one of model\.task=sets"):
        Settings(model=ModelSettings("x", task="pairs"), ask=AskSettings(granularity="sentence")).check()
    with pytest.raises(InputError, match="granularity=word is not one of null, paragraph, sentence, type"):
        Settings(ask=AskSettings(granularity="word")).check()
    assert Settings(ask=AskSettings(granularity="type")).task == "sets"
    assert Settings(model=ModelSettings("x", task="pairs")).task == "pairs"
