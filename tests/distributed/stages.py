"""The stages under test: their commands, with settings that run in a few seconds.

Generator and metrics are the miniatures of the package, so questions and rewards vary. The settings use state that a
resumed run must restore: log lines between checkpoints, an adaptive KL coefficient, and the best model.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from tests.distributed.runs import PROJECT

MODELS = PROJECT / "rl_qg" / "miniatures" / "pretrained"


@dataclass(frozen=True)
class Stage:
    """A command of the package. In its settings, {inputs} is the folder with the results of earlier stages."""

    name: str
    script: str
    settings: tuple[str, ...]
    resumes: str = ""  # regular expression for the log of a run that resumes; its group says from where

    def command(self, inputs: Path, folder: Path) -> tuple[str, list[str]]:
        """The script and its settings, for a run that writes only into `folder`."""
        settings = [text.format(inputs=inputs, run=folder) for text in (*self.settings, *COMMON)]
        return str(PROJECT / "rl_qg" / self.script), settings


COMMON = (
    *("preset=smoke", "seed=7", "training.use_cpu=true", "training.report_to=none"),
    *("data.max_train=32", "data.max_validation=16", "training.eval_samples=8"),  # the preset's are not for files
    *("evaluation.max_examples=8", "evaluation.check_reward=4"),
)
DATA = ("data.train={inputs}/train.json", "data.validation={inputs}/dev.json", "data.labelled_fraction=0.5")
REWARD = (f"reward_models.bert={MODELS}/bert", f"reward_models.gpt2={MODELS}/gpt2", "reward=qrelscore")
TRAINING = (
    *DATA,
    *REWARD,
    "output_dir={run}",
    "training.batch_size=4",
    "training.logging_steps=3",
    "training.eval_steps=4",
    "training.save_steps=2",
    "training.save_total_limit=2",
    "ce.learning_rate=1e-4",
    "scst.learning_rate=1e-4",
    "scst.max_new_tokens=24",
    "scst.kl_coefficient=0.1",
    "scst.kl_target=0.01",
    "scst.stop_on=rouge_l",
    "scst.patience=99",
)
GENERATION = ("generate.max_new_tokens=24", "generate.batch_size=4", "generate.num_samples=3", "generate.top_p=0.9")
AUGMENTATION = ("augment.num_samples=40", "augment.filters.length.min_words=3")
READER = (f"qa.model.path={MODELS}/distilbert", "qa.max_steps=8", "qa.save_steps=2", "qa.seeds=[0,1]")
METRICS = ("metrics=[rouge_l,qrelscore]", *REWARD[:2], "output={run}", "batch_size=16", "resamples=50")
CHECKPOINT = r"continuing from \S*?(checkpoint-\d+)"


def encoder(section: str, kind: str) -> tuple[str, ...]:
    """The settings of a command that fine-tunes an encoder."""
    return (*DATA[:2], f"{section}.model.path={MODELS}/{kind}", "max_steps=8", "save_steps=2", "output_dir={run}")


STAGES = {
    stage.name: stage
    for stage in (
        Stage(
            "pipeline",
            "pipeline.py",
            (f"model.path={MODELS}/bart", *TRAINING, *GENERATION, *AUGMENTATION, *READER),
            CHECKPOINT,
        ),
        Stage(
            "ce",
            "train.py",
            ("stages=ce", f"model.path={MODELS}/bart", *TRAINING, "ce.epochs=2", "training.eval_steps=2"),
            CHECKPOINT,
        ),
        Stage("scst", "train.py", ("stages=scst", "model.path={inputs}/ce", *TRAINING, "scst.epochs=2"), CHECKPOINT),
        Stage("both", "train.py", (f"model.path={MODELS}/bart", *TRAINING), CHECKPOINT),
        Stage(
            "generate",
            "generate.py",
            ("model.path={inputs}/scst", *DATA[:1], *GENERATION, "output={run}/questions.jsonl"),
            r"(\d+ of \d+ passages)",
        ),
        Stage(
            "score",
            "score.py",
            (*REWARD, "input={inputs}/questions.jsonl", "output={run}/scored.jsonl", "score.batch_size=16"),
            r"(\d+ of \d+ rows)",
        ),
        Stage(
            "augment",
            "__main__.py",
            (
                "augment",
                *AUGMENTATION,
                "questions={inputs}/questions.jsonl",
                "gold={inputs}/train.json",
                "output={run}/augmented.json",
            ),
        ),
        Stage("qa", "qa.py", (*DATA, *READER, "output_dir={run}"), CHECKPOINT),
        Stage(
            "best-of-n",
            "train.py",
            ("algorithm=best_of_n", "stages=scst", "model.path={inputs}/ce", *TRAINING[:-3], "scst.num_samples=3"),
            CHECKPOINT,
        ),
        Stage(
            "answers",
            "__main__.py",
            ("answers", "input={inputs}/train.json", "output={run}/answers.jsonl", "batch_size=2"),
        ),
        Stage("train-answers", "__main__.py", ("train-answers", *encoder("train_answers", "distilbert")), CHECKPOINT),
        Stage("train-kpqa", "__main__.py", ("train-kpqa", *encoder("train_kpqa", "bert")), CHECKPOINT),
        Stage(
            "evaluate",
            "__main__.py",
            ("evaluate", "predictions={inputs}/questions.jsonl", "references={inputs}/train.json", *METRICS),
        ),
        Stage("correlate", "__main__.py", ("correlate", "human={inputs}/judgements.jsonl", "folds=2", *METRICS)),
        Stage("robustness", "__main__.py", ("robustness", "input={inputs}/train.json", *METRICS)),
        Stage("separate", "__main__.py", ("separate", *DATA[:2], *REWARD, "output={run}", "resamples=50")),
    )
}


def write_data(folder: Path) -> None:
    """`train.json` and `dev.json` of the embedded corpus, and `judgements.jsonl`, ratings of its questions."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, passages in (("train", 12), ("dev", 4)):
        examples = list(synthetic_examples(passages, seed=5, prefix=name))
        write_squad(folder / f"{name}.json", examples[:48] if name == "train" else examples[:8])
    examples = list(synthetic_examples(12, seed=6, prefix="rated"))[:40]
    judgements = [
        {
            "question": example.question,
            "context": example.context,
            "answer": example.answers[0].text,
            "references": [examples[number - 1].question],
            "system": "ab"[number % 2],
            "human": {"fluency": len(example.question) % 5, "relevance": number % 4},
        }
        for number, example in enumerate(examples)
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in judgements)
    (folder / "judgements.jsonl").write_text(lines)
