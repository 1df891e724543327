"""Training of models with language codes: losses against the library's, and models that the library goes on with."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MBart50Tokenizer,
    MBartForConditionalGeneration,
    MBartTokenizer,
)

from rl_qg.generation.generator import CandidateGenerator
from rl_qg.training.trainer import SelfCriticalConfig, SelfCriticalTrainer
from tests.questions import example
from tests.rl_qg.training.word_task import WordReward
from tests.tiny_models import coded_tokenizer, tiny

WORDS = "Ada traf Ben in Rom Wer Wo w3"
CPU = torch.device("cpu")
ROWS = [
    example("Ada traf Ben in Rom", "Ben", "Wer traf Ada", "a"),
    replace(example("Ben traf Ada", "Ada", "Wer", "b"), language="fr"),
    example("Rom", "Rom", "Wo traf Ben Ada", "c"),
]


def trainer(folder: Path, tokenizer_class: Any, **options: Any) -> SelfCriticalTrainer:
    tokenizer = coded_tokenizer(tokenizer_class, WORDS)
    special = {"pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None}
    model = tiny(MBartForConditionalGeneration, len(tokenizer) + 1, spread=0.2, **special)
    model.generation_config.decoder_start_token_id = 2
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 3,
        "language": "de",
        "learning_rate": 1e-2,
        "scst_learning_rate": 1e-2,
        "max_new_tokens": 5,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
    }
    return SelfCriticalTrainer(
        model=model,
        args=SelfCriticalConfig(output_dir=str(folder), **{**settings, **options}),
        reward=WordReward(),
        train_dataset=ROWS,
        eval_dataset=ROWS,
        processing_class=tokenizer,
    )


def of_the_library(subject: SelfCriticalTrainer, row: int, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities (t, v) at the tokens of a question, with the labels that the library's tokenizer makes."""
    tokenizer, item = subject.processing_class, ROWS[row]
    code = tokenizer.convert_tokens_to_ids({"": "de_DE", "fr": "fr_XX"}[item.language])
    leads = isinstance(tokenizer, MBart50Tokenizer)
    labels = torch.tensor([[code, *tokens] if leads else [*tokens, code]])
    batch = subject.encoder.batch([item])
    logits = subject.model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).logits
    return (logits[0, 1:] if leads else logits[0, :-1]).log_softmax(-1)


@pytest.mark.parametrize("tokenizer_class", [MBartTokenizer, MBart50Tokenizer])
def test_losses_are_those_of_the_library_without_the_code(tmp_path: Path, tokenizer_class: Any) -> None:
    subject = trainer(tmp_path, tokenizer_class)
    targets = subject.encoder.targets(ROWS)
    losses = []
    for row, tokens in enumerate(targets):
        logprobs = of_the_library(subject, row, tokens)
        losses.append(float(-logprobs.detach().gather(-1, torch.tensor(tokens).unsqueeze(-1)).mean()))
    assert subject.evaluate()["eval_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    # The gold questions of two contexts, then two samples for each context, as in the self-critical stage.
    inputs: Any = subject.encoder(ROWS)
    samples = torch.tensor([[5, 6, 2], [7, 2, -100], [8, 2, -100], [9, 4, 2], [6, 2, -100], [6, 6, 2]])
    rows = torch.cat((torch.tensor([[5, 2, -100], [7, 8, 2]]), samples))
    logits = subject.logits(subject.model, inputs, rows, gold=torch.tensor([0, 2])).log_softmax(-1)
    assert logits.shape[:2] == rows.shape
    for got, tokens, row in zip(logits, rows.tolist(), [0, 2, 0, 0, 1, 1, 2, 2], strict=True):
        known = [token for token in tokens if token >= 0]
        torch.testing.assert_close(got[: len(known)], of_the_library(subject, row, known), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("tokenizer_class", [MBartTokenizer, MBart50Tokenizer])
def test_the_library_continues_with_a_trained_model(tmp_path: Path, tokenizer_class: Any) -> None:
    trainer(tmp_path, tokenizer_class, ce_epochs=5, scst_epochs=1).train()
    folder = tmp_path / "ce"
    rows = [replace(item, language="") for item in ROWS]
    ours = CandidateGenerator(folder, device=CPU).greedy(rows, max_new_tokens=6)
    assert len(set(ours)) > 1 and any(ours)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    forced = model.generation_config.forced_bos_token_id is not None
    theirs = []
    for item in rows:
        answer = item.answers[0].text
        marked = item.context.replace(answer, f"<hl> {answer} <hl>", 1)
        ids = tokenizer(marked, return_tensors="pt")
        tokens = model.generate(**ids, num_beams=1, do_sample=False, max_new_tokens=6 + forced)
        theirs.append(tokenizer.decode(tokens[0], skip_special_tokens=True).strip())
    assert ours == theirs
    french = CandidateGenerator(folder, device=CPU, language="fr").batch(rows)["starts"][:, -1]
    assert set(tokenizer.convert_ids_to_tokens(french)) == {"fr_XX"}
