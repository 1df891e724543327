"""The metrics as reward functions of TRL's trainers, which are run."""

import math
import pickle
from functools import partial

import pytest
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from rewards import QRelScore, Weighted

trl = pytest.importorskip("trl", reason="trl is not installed (pip install rl-qg[trl])")

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # TRL's own use of transformers

ROWS = [
    {"prompt": "Ask about Ida Koll:", "context": "The town was founded in 1204 by Ida Koll.", "answer": "Ida Koll"},
    {"prompt": "Ask about 1931:", "context": None, "answer": "1931"},
]
"""The second row has no passage, so no metric applies to it."""


@pytest.fixture(scope="module")
def metrics(folders):
    relevance = QRelScore(encoder=folders["bert"], decoder=folders["gpt2"])
    answer = {"weight": 0.3, "clip": [-20, 0], "scale": 0.05, "model": folders["roberta"]}
    return [relevance, Weighted({"relevance": relevance, "qascore": answer})]


@pytest.mark.parametrize("algorithm", ["GRPO", "RLOO"])
def test_a_trainer_uses_the_metrics_as_reward_functions(folders, metrics, tmp_path, algorithm):
    tokenizer = AutoTokenizer.from_pretrained(folders["gpt2"])
    tokenizer.pad_token = tokenizer.eos_token
    calls = []

    def watch(**columns):
        scores = metrics[1](**columns)
        calls.append((columns["context"], scores))
        return scores

    trainer = getattr(trl, f"{algorithm}Trainer")(
        model=AutoModelForCausalLM.from_pretrained(folders["gpt2"]),
        reward_funcs=[*metrics, watch],
        train_dataset=Dataset.from_list(ROWS),
        processing_class=tokenizer,
        args=getattr(trl, f"{algorithm}Config")(
            output_dir=str(tmp_path),
            per_device_train_batch_size=4,
            num_generations=2,
            max_completion_length=6,
            max_steps=2,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            seed=0,
        ),
    )
    trainer.train()
    steps = [line for line in trainer.state.log_history if "loss" in line]
    assert len(steps) == 2
    for step in steps:
        names = ["rewards/qrelscore/mean", "qrelscore/lrm", "qrelscore/grg"]
        names += ["rewards/weighted/mean", "weighted/relevance", "weighted/relevance/lrm", "weighted/qascore"]
        assert all(math.isfinite(step[name]) for name in names), step
        assert "weighted/qascore/token_logprobs" not in step  # a list for each question has no mean
        assert step["weighted/relevance"] == pytest.approx(step["rewards/qrelscore/mean"])
    assert calls
    for contexts, scores in calls:
        assert [score is None for score in scores] == [context is None for context in contexts]
        assert contexts.count(None) == 2


def test_trl_reads_the_names_and_calls_the_metrics_synchronously(metrics):
    from trl.trainer.utils import get_callable_name, is_async_callable

    for metric, name in zip(metrics, ["qrelscore", "weighted"], strict=True):
        assert get_callable_name(metric) == get_callable_name(partial(metric, answer=None)) == name
        assert not is_async_callable(metric) and not is_async_callable(partial(metric, answer=None))


def test_conversations_and_pickled_metrics_score_the_same(metrics):
    completions = ["Who founded the town?", "When?"]
    columns = {"prompts": ["p", "p"], "context": [ROWS[0]["context"]] * 2, "answer": ["Ida Koll"] * 2}
    for metric in metrics:
        plain = metric(completions=completions, **columns)
        spoken = [[{"role": "assistant", "content": text}] for text in completions]
        assert metric(completions=spoken, **columns) == plain
        assert pickle.loads(pickle.dumps(metric))(completions=completions, **columns) == plain
        assert plain == metric.score(completions, columns["context"], answers=columns["answer"]).scores
