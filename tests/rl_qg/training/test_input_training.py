"""Training with each input of the generator: what the model reads, what the reward is given, and what is stored."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.prompts import INPUTS
from rl_qg.runtime.errors import InputError
from rl_qg.settings import ModelSettings, Settings
from rl_qg.training.config import check_input, language_of
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer
from tests.questions import example
from tests.rl_qg.training.word_task import WordReward
from tests.tiny_models import tiny_bart, tiny_t5, word_tokenizer

PASSAGE = "Ada met Ben . Ben met Ada in Rome . He died ."
WORDS = f"{PASSAGE} ask: Who Where w3"
# Two questions about one sentence, so the two inputs without an answer are equal; both are learned.
EXAMPLES = [
    example(PASSAGE, "Ada", "Who met Ben", "first", start=22),
    example(PASSAGE, "Rome", "Where met Ben Ada", "second"),
]
READ = {
    "paragraph_answer": {
        "Ada met Ben . Ben met <hl> Ada <hl> in Rome . He died .",
        "Ada met Ben . Ben met Ada in <hl> Rome <hl> . He died .",
    },
    "sentence_answer": {"Ben met <hl> Ada <hl> in Rome .", "Ben met Ada in <hl> Rome <hl> ."},
    "paragraph_sentence": {"Ada met Ben . <hl> Ben met Ada in Rome . <hl> He died ."},
    "paragraph": {"Ada met Ben . Ben met Ada in Rome . He died ."},
}


class Watched(WordReward):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: set[tuple[str, str]] = set()

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.given |= set(zip(contexts, answers, strict=True))
        return super().score(questions, contexts)


@pytest.mark.parametrize(("build", "form"), [*((tiny_bart, form) for form in INPUTS), (tiny_t5, "sentence_answer")])
def test_both_stages_read_the_input_and_the_reward_the_passage(tmp_path: Path, build: Any, form: str) -> None:
    tokenizer, reward = word_tokenizer(WORDS), Watched()
    read: list[tuple[str, int]] = []  # input, step
    subject = SelfCriticalTrainer(
        model=build(len(tokenizer) + 1),
        args=SelfCriticalConfig(
            output_dir=str(tmp_path),
            input=form,
            prefix="ask: ",
            ce_epochs=1,
            scst_epochs=1,
            per_device_train_batch_size=2,
            max_new_tokens=4,
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        ),
        reward=reward,
        train_dataset=EXAMPLES,
        processing_class=tokenizer,
    )

    def watch(module: Any, args: Any, options: dict[str, Any]) -> None:
        for ids in options["input_ids"]:
            text = tokenizer.decode([token for token in ids if token != tokenizer.pad_token_id])
            read.append((text.removeprefix("<s> ask: ").removesuffix(" </s>"), subject.state.global_step))

    subject.model.get_encoder().register_forward_pre_hook(watch, with_kwargs=True)
    subject.train()
    for step in (0, 1):  # the update of each stage
        rows = [text for text, at in read if at == step]
        assert set(rows) == READ[form]
        assert len(rows) == 2 * (1 + step)  # every row, twice in the second stage: rollout and update
    assert reward.given == {(PASSAGE, "Ada"), (PASSAGE, "Rome")}
    assert json.loads((tmp_path / "ce" / "prompt.json").read_text())["input"] == form
    generator = CandidateGenerator(tmp_path / "ce", device=torch.device("cpu"))
    (first,) = generator.encoder.encode(EXAMPLES[:1])
    assert generator.tokenizer.decode(first.ids[1:-1]).removeprefix("ask: ") in READ[form]


def test_a_model_goes_on_with_the_input_and_the_language_it_was_trained_with(tmp_path: Path) -> None:
    (tmp_path / "prompt.json").write_text('{"input": "paragraph", "language": "de"}')
    chosen = Settings(model=ModelSettings(str(tmp_path)), stages="scst")
    with pytest.raises(InputError, match=r"was trained with model\.input=paragraph, not paragraph_answer; give model"):
        check_input(chosen)
    for stored, key in (
        ({"input": "paragraph_answer", "task": "pairs"}, "model.task=pairs"),
        ({"input": "paragraph_answer", "task": "sets", "granularity": "sentence"}, "model.task=sets"),
    ):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / "prompt.json").write_text(json.dumps(stored))
        with pytest.raises(InputError, match=rf"was trained with {key}, not questions; give {key}, or train both"):
            check_input(replace(chosen, model=ModelSettings(str(tmp_path / "other"))))
    check_input(replace(chosen, stages="both"))
    check_input(replace(chosen, model=replace(chosen.model, input="paragraph")))
    assert language_of(chosen) == "de"
    assert language_of(replace(chosen, model=replace(chosen.model, language="fr"))) == "fr"
    assert language_of(replace(chosen, model=ModelSettings("facebook/mbart-large-50"))) == ""
