"""The model card of a run: `README.md` in `ce/` and `scst/`, made from the run's files alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.utils import HFValidationError, validate_repo_id

from rl_qg.evaluation.reward_hacking import SeriesChange, rises
from rl_qg.generation.generator import NO_RULES
from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.reports.reward_hacking_view import LABELS, MEASURES, REWARD, diverging
from rl_qg.reports.run_files import ReportedMean, ReportedRun, read_run
from rl_qg.runtime.json_files import atomic_writer, read_json
from rl_qg.settings import SCSTSettings

STAGES = ("ce", "scst")
COLUMNS = {"ce": "cross-entropy", "scst": "by reward", "gold": "human questions"}
ALGORITHMS = {
    "scst": "self-critical sequence training (SCST)",
    "rloo": "REINFORCE leave-one-out (RLOO, by TRL)",
    "grpo": "group relative policy optimisation (GRPO, by TRL)",
}


def write_model_card(run_folder: Path) -> list[Path]:
    """Write a card beside every model of a run; return their paths. Call it again when more is known of the run.

    A folder without `config.yaml` was not made by a command, and nothing is said about it.
    """
    if not (run_folder / "config.yaml").exists():
        return []
    run = read_run(run_folder)
    config = yaml.safe_load(run.config)
    paths = []
    for stage in STAGES:
        if (run_folder / stage / "config.json").exists():
            paths.append(run_folder / stage / "README.md")
            with atomic_writer(paths[-1]) as stream:
                stream.write(ModelOfRun(run, config, stage).card())
    return paths


def final_model(run_folder: Path) -> Path | None:
    """The folder of the last stage's model, of those that are there."""
    found = [run_folder / stage for stage in STAGES if (run_folder / stage / "config.json").exists()]
    return found[-1] if found else None


@dataclass(frozen=True)
class ModelOfRun:
    """One model of a run.

    Args:
        run: what its files hold.
        config: its `config.yaml`.
        stage: `ce` or `scst`.
    """

    run: ReportedRun
    config: Mapping[str, Any]
    stage: str

    def card(self) -> str:
        """Front matter for the Hub and the text, as Markdown."""
        sections = {
            "How to use it": self._usage(),
            "Data": self._data(),
            "Training": self._training(),
            "Results": self._results(),
            "Limits": self._limits(),
            "Licence": self._licence(),
        }
        text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items())
        return f"---\n{self._front_matter().to_yaml()}\n---\n\n# {self.name}\n\n{self._summary()}\n\n{text}\n"

    # --- what it is ---

    @property
    def folder(self) -> Path:
        """Where the model is."""
        return self.run.folder / self.stage

    @property
    def name(self) -> str:
        """The repository's name for the model that goes to the Hub, else run and stage."""
        return self._repository or f"{self.run.folder.resolve().name}/{self.stage}"

    @property
    def _repository(self) -> str | None:
        repository = self.config.get("training", {}).get("hub_model")
        return repository if final_model(self.run.folder) == self.folder else None

    @property
    def _base(self) -> str:
        return str(self.config["model"]["path"])

    @property
    def _by_reward(self) -> bool:
        return self.stage == "scst"

    def _summary(self) -> str:
        by_reward = f"by {ALGORITHMS[self.config.get('algorithm', 'scst')]} with an evaluation metric as reward"
        how = ["by cross-entropy on human questions"] if self.config["stages"] != "scst" else []
        return (
            "A question generator: it reads a passage in which an answer is marked and writes the question that this "
            f"answer answers. `{shown(self._base)}` was trained with rl-qg "
            f"{', then '.join([*how, *([by_reward] if self._by_reward else [])])}."
        )

    def _front_matter(self) -> ModelCardData:
        report = self.run.record.part("data_report")
        sources = report.part("train").get("sources") or []
        results = [
            EvalResult(
                task_type="text-generation",
                task_name="question generation",
                dataset_type="custom",
                dataset_name=", ".join(map(shown, report.part("validation").get("sources") or ["validation"])),
                metric_type=kind,
                metric_name=name,
                metric_value=round(estimate.mean, 6),
            )
            for kind, name in (("bleu4", "BLEU-4"), ("rouge_l", "ROUGE-L"), ("reward", self._reward_name))
            if (estimate := self.run.evaluation.estimate("models", self.stage, kind)) is not None
        ]
        own = self._base.startswith("miniature:")
        return ModelCardData(
            license="apache-2.0" if own else "other",
            license_name=None if own else "of-base-model-and-data",
            library_name="transformers",
            base_model=self._base if is_on_hub(self._base) else None,
            datasets=[source for source in sources if is_on_hub(source)] or None,
            tags=["question-generation", "rl-qg", *(["reinforcement-learning"] if self._by_reward else [])],
            model_name=self.name,
            eval_results=results or None,
        )

    # --- sections ---

    def _usage(self) -> str:
        model, prompt = read_json(self.folder / "config.json"), read_json(self.folder / "prompt.json")
        rules = self._decoding()
        kind = "Seq2SeqLM" if model.get("is_encoder_decoder") else "CausalLM"
        behind = "" if model.get("is_encoder_decoder") else "[:, inputs.input_ids.shape[1] :]"
        place = self._repository or str(self.folder)
        parts = [prompt["prefix"], prompt["separator"]]
        before, after = (json.dumps(text, ensure_ascii=False) if text else "" for text in parts)
        text = " + ".join(filter(None, (before, "marked", after)))
        code = f"""\
from transformers import AutoModelFor{kind}, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{place}")
model = AutoModelFor{kind}.from_pretrained("{place}")
passage, answer = "The old bridge was built by Paula Klein in 1874.", "Paula Klein"
start = passage.index(answer)
marked = passage[:start] + f"{HIGHLIGHT} {{answer}} {HIGHLIGHT}" + passage[start + len(answer) :]
inputs = tokenizer({text}, return_tensors="pt")
tokens = model.generate(**inputs, {rules}){behind}
print(tokenizer.decode(tokens[0], skip_special_tokens=True).strip())"""
        return (
            f"```python\n{code}\n```\n\nInputs of up to {prompt['max_source_length']} tokens were seen in training; "
            f"`rl-qg generate model.path={place} data.train=passages.json output=questions.jsonl` cuts longer ones "
            "around their answer and writes many questions at once."
        )

    def _decoding(self) -> str:
        """Arguments of `generate` for the plain greedy question, whatever rules the checkpoint ships."""
        path = self.folder / "generation_config.json"
        shipped = read_json(path) if path.exists() else {}
        plain = {"num_beams": 1, "do_sample": False, **NO_RULES}
        changed = {key: value for key, value in plain.items() if shipped.get(key) not in (None, value)}
        rules = {"max_new_tokens": self.config["scst"]["max_new_tokens"], **changed}
        return ", ".join(f"{key}={value!r}" for key, value in rules.items())

    def _data(self) -> str:
        record = self.run.record
        rows = [[f"`{shown(name)}`", f"`{digest}`"] for name, digest in (record.get("data") or {}).items()]
        counts, leakage = record.part("examples"), record.part("leakage")
        train = record.part("data_report", "train")
        said = [f"{counts.count('gold')} questions for training", f"{counts.count('validation')} for validation"]
        if train.count("read") is not None:
            said.append(f"{train.count('kept')} of {train.count('read')} training records could be used")
        if leakage.count("train_examples_dropped") is not None:
            said.append(
                f"{leakage.count('train_examples_dropped')} training examples were left out because their passages "
                "are validation passages"
            )
        return f"{'; '.join(said)}.\n\n{table(['source', 'SHA-256'], rows)}"

    def _training(self) -> str:
        training, record = self.config["training"], self.run.record
        processes = record.count("hardware", "world_size") or 1
        rows = [
            ["base model", f"`{shown(self._base)}`"],
            ["contexts per update", training["batch_size"] * training["gradient_accumulation_steps"] * processes],
            ["precision", {"no": "float32"}.get(training["precision"], training["precision"])],
            ["seed", self.config["seed"]],
        ]
        peft = self.config.get("peft", {})
        if peft.get("method", "none") != "none":
            rows.append(["adapters (merged)", f"{peft['method']}, r={peft['r']}, alpha={peft['alpha']}"])
        if self.config["stages"] != "scst":
            rows.append(["cross-entropy", self._course("ce")])
        if self._by_reward:
            rows.append([ALGORITHMS[self.config.get("algorithm", "scst")], self._course("scst")])
            rows += [[f"`scst.{key}`", f"`{value}`"] for key, value in self._changed().items()]
            kept = self._trained.get("kept")
            if kept:
                rows.append(["model kept", f"step {kept['step']}, the best by {kept['measure']}"])
        rows.append(["made with", self._versions()])
        if not self._by_reward:
            return table(["setting", "value"], rows)
        return (
            f"Reward, with everything that can move a number:\n\n    {self._signature}\n\n"
            f"{table(['setting', 'value'], rows)}"
        )

    def _versions(self) -> str:
        versions, commit = self.run.record.get("versions") or {}, self.run.record.get("code", "commit")
        libraries = ("rl-qg", "torch", "transformers", "trl", "peft")
        found = [f"{name} {versions[name]}" for name in libraries if name in versions]
        return ", ".join([*found, *([f"commit {commit[:12]}"] if commit else [])])

    def _course(self, stage: str) -> str:
        options, peft = self.config[stage], self.config.get("peft", {})
        factor = 1.0 if peft.get("method", "none") == "none" else peft["learning_rate_factor"]
        epochs = options["epochs"]
        return f"{epochs:g} epoch{'' if epochs == 1 else 's'}, learning rate {factor * options['learning_rate']:g}"

    def _changed(self) -> dict[str, Any]:
        """Settings of the self-critical stage that are not the default."""
        default = {field.name: field.default for field in fields(SCSTSettings)}
        plain = default.keys() - {"epochs", "learning_rate"}
        chosen = self.config["scst"]
        return {key: value for key, value in chosen.items() if key in plain and value != default[key]}

    def _results(self) -> str:
        evaluation = self.run.evaluation
        count = evaluation.count("examples")
        if count is None:
            return self._results_of_training()
        columns = [name for name in self._columns("gold") if evaluation.get("models", name) is not None]
        rows = []
        for measure in MEASURES:
            key = "reward" if measure.key == REWARD else measure.key
            found = {name: evaluation.estimate("models", name, key) for name in columns}
            if any(found.values()):
                rows.append([measure.label, *(_cell(measure.text, found[name]) for name in columns)])
        watched = evaluation.get("held_out_signature")
        note = f" The held-out reward, which nothing optimised:\n\n    {watched}" if watched else ""
        return (
            f"Greedy questions for {count} held-out examples; 95 % intervals over passages in brackets.{note}\n\n"
            f"{table(['', *(COLUMNS[name] for name in columns)], rows)}"
        )

    def _results_of_training(self) -> str:
        """What the last evaluation of each stage measured; of a model that was kept, that of its step."""
        kept = (self._trained.get("kept") or {}).get("step")
        last = {}
        for line in self.run.metrics.lines:
            is_later = kept is not None and line.get("stage") == "scst" and (line.number("step") or 0) > kept
            if line.get("eval_loss") is not None and not is_later:
                last[str(line.get("stage"))] = line
        columns = [name for name in self._columns() if name in last]
        if not columns:
            return "None yet."
        rows = []
        for measure in MEASURES:
            values = [last[name].number(measure.field) for name in columns]
            if any(value is not None for value in values):
                rows.append([measure.label, *("" if value is None else measure.text(value) for value in values)])
        return (
            "Greedy questions for the validation slice of the run, at the last evaluation of each stage.\n\n"
            f"{table(['', *(COLUMNS[name] for name in columns)], rows)}"
        )

    def _columns(self, *more: str) -> list[str]:
        return [*(("ce", "scst") if self._by_reward else ("ce",)), *more]

    def _limits(self) -> str:
        known = [
            "It asks about the marked answer as the training data would; whether the passage really answers the "
            "question is not checked, and neither are bias and truth.",
        ]
        if self._by_reward:
            known = [self._hacking(), *known]
        return "\n".join(f"- {text}" for text in known)

    def _hacking(self) -> str:
        wrong = diverging(self.run)
        if wrong:
            said = "; ".join(
                f"{LABELS[key].label} {LABELS[key].text(change.start)} → {LABELS[key].text(change.end)}"
                for key, change in wrong.items()
            )
            return (
                "**The reward may have been hacked**: it went up in training while other measures went clearly the "
                f"wrong way ({said}). Read questions before you use them."
            )
        proxy = "A metric that is optimised stops measuring: judge this model by something else."
        rewards = self.run.metrics.self_critical(f"eval_{REWARD}")
        if SeriesChange.of(rewards) is None:
            return f"{proxy} There were too few evaluations in training to see whether the reward was hacked."
        if not rises(rewards):
            return f"{proxy} In training it did not go up on the validation slice."
        return f"{proxy} No held-out measure went clearly the wrong way while the reward rose, which proves nothing."

    def _licence(self) -> str:
        if self._base.startswith("miniature:"):
            return "Apache-2.0, like rl-qg; the terms of the training data are their own."
        return (
            f"The weights derive from `{shown(self._base)}` and from the data above: the terms of both hold. "
            "rl-qg itself is under Apache-2.0."
        )

    # --- what the files say ---

    @property
    def _trained(self) -> Mapping[str, Any]:
        path = self.run.folder / "trained.json"
        found: Mapping[str, Any] = read_json(path) if path.exists() else {}
        return found

    @property
    def _signature(self) -> str:
        return str(self.run.signature or self._trained.get("reward") or self.config["reward"].get("_target_"))

    @property
    def _reward_name(self) -> str:
        return self._signature.partition("|")[0]


def is_on_hub(name: str) -> bool:
    """Whether a model or data set is named as the Hub names them, not a local path or one of ours."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    file = Path(name).suffix in (".json", ".jsonl", ".gz", ".parquet", ".csv", ".tsv")
    return name != "world" and not file and not Path(name).exists()


def shown(source: str) -> str:
    """A source as a card may show it: of an absolute path, which tells of somebody's machine, the last part."""
    return Path(source).name if Path(source).is_absolute() else source


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _cell(text: Any, estimate: ReportedMean | None) -> str:
    if estimate is None:
        return ""
    if estimate.low is None or estimate.high is None:
        return str(text(estimate.mean))
    return f"{text(estimate.mean)} ({text(estimate.low)} to {text(estimate.high)})"
