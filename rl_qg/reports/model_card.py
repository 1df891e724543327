"""The model card of a run: `README.md` in `ce/` and `scst/`, made from the run's files alone; the upload."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, HfApi, ModelCardData
from huggingface_hub.utils import HFValidationError, validate_repo_id
from jinja2 import StrictUndefined, Template

from rl_qg.generation.generator import NO_RULES
from rl_qg.generation.prompts import HIGHLIGHT, WHOLE
from rl_qg.generation.tasks import PREFIXES
from rl_qg.pages.plots import ReportedMean
from rl_qg.pages.results import as_markdown
from rl_qg.reports.report import unlabelled_use
from rl_qg.reports.run_files import BY_KEY, MEASURES, REWARD, SCORES, ReportedRun, diverging, read_run
from rl_qg.reports.views import equal_conditions, reader_label, sentence
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, read_json
from rl_qg.scoring.held_out import SeriesChange, rises
from rl_qg.settings import SCSTSettings

COLUMNS = {"ce": "cross-entropy", "scst": "by reward", "gold": "human questions"}
ORACLE_ROWS = {
    "right": "Right by the oracle of the embedded corpus",
    "unsupported": "With a name or number that the passage lacks",
}


def results_text(run: ReportedRun, stage: str, kept_step: int | None) -> str:
    """The measures of the model of `stage` and of the stages before it, as Markdown.

    They come from `evaluation.json`, or where there is none from the last evaluations of training. `kept_step` is the
    step of the model that was kept as the best; None: the last one was kept.
    """
    columns = ["ce", "scst"] if stage == "scst" else ["ce"]
    evaluation = run.evaluation
    count = evaluation.count("examples")
    if count is None:
        return _results_of_training(run, columns, kept_step)
    columns = [name for name in (*columns, "gold") if evaluation.get("models", name) is not None]
    rows = []
    for measure in MEASURES:
        key = "reward" if measure.key == REWARD else measure.key
        means = [evaluation.estimate("models", name, key) for name in columns]
        if any(means):
            rows.append([measure.label, *(_cell(measure.text, mean) for mean in means)])
    for key, label in ORACLE_ROWS.items():
        shares = [evaluation.estimate("models", name, "oracle", key) for name in columns]
        if any(shares):
            rows.append([label, *(_cell(lambda value: f"{100 * value:.1f} %", share) for share in shares)])
    signature = evaluation.get("held_out_signature")
    note = f" The held-out reward, which was not optimised:\n\n    {signature}" if signature else ""
    choice = f" {evaluation.choice_text}" if evaluation.choice_text else ""
    return (
        f"Greedy questions for {count} held-out examples; 95 % intervals over {evaluation.resampled} in "
        f"brackets.{choice}{note}\n\n{_table(columns, rows)}{_readers_text(run)}"
    )


def _readers_text(run: ReportedRun) -> str:
    if not run.readers:
        return ""
    rows = [
        [
            reader_label(run, name),
            *(_cell("{:.1f}".format, run.reader_score(name, score)) for score in SCORES),
            run.qa[name].count("updates") or "",
        ]
        for name in run.readers
    ]
    table = as_markdown(["reader trained on", *SCORES.values(), "updates"], rows)
    about = f"Extractive readers on held-out human questions, percent ({equal_conditions(run)})"
    return f"\n\n{about}:\n\n{table}\n\n{sentence(run)}".rstrip()


def _results_of_training(run: ReportedRun, columns: Sequence[str], kept_step: int | None) -> str:
    last = {}
    for line in run.metrics.lines:
        step = line.number("step") or 0
        is_later = kept_step is not None and line.get("stage") == "scst" and step > kept_step
        if line.get("eval_loss") is not None and not is_later:
            last[str(line.get("stage"))] = line
    columns = [name for name in columns if name in last]
    if not columns:
        return "None yet."
    rows = []
    for measure in MEASURES:
        values = [last[name].number(measure.field) for name in columns]
        if any(value is not None for value in values):
            rows.append([measure.label, *("" if value is None else measure.text(value) for value in values)])
    return (
        "Greedy questions for the validation examples of the run, at the last evaluation of each stage.\n\n"
        f"{_table(columns, rows)}"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return as_markdown(["", *(COLUMNS[name] for name in columns)], rows)


def _cell(text: Callable[[float], str], mean: ReportedMean | None) -> str:
    if mean is None:
        return ""
    if mean.low is None or mean.high is None:
        return text(mean.mean)
    return f"{text(mean.mean)} ({text(mean.low)} to {text(mean.high)})"


def limits_text(run: ReportedRun, stage: str) -> str:
    limits = [
        "It asks about the marked answer as the training data would; whether the passage really answers the "
        "question is not checked, and neither are bias and truth.",
    ]
    if stage == "scst":
        limits = [_reward_hacking(run), *limits]
    return "\n".join(f"- {text}" for text in limits)


def _reward_hacking(run: ReportedRun) -> str:
    wrong = diverging(run)
    if wrong:
        changes = "; ".join(
            f"{BY_KEY[key].label} {BY_KEY[key].text(change.start)} → {BY_KEY[key].text(change.end)}"
            for key, change in wrong.items()
        )
        return (
            "**The reward may have been hacked**: it went up in training while other measures went clearly the "
            f"wrong way ({changes}). Read questions before you use them."
        )
    advice = "A metric that has been optimised is no longer an independent measure: evaluate this model by another."
    rewards = run.metrics.self_critical(f"eval_{REWARD}")
    if SeriesChange.of(rewards) is None:
        return f"{advice} There were too few evaluations in training to see whether the reward was hacked."
    if not rises(rewards):
        return f"{advice} In training it did not go up on the validation examples."
    return f"{advice} No held-out measure went clearly the wrong way while the reward rose, which proves nothing."


STAGES = ("ce", "scst")
ALGORITHMS = {
    "scst": "self-critical sequence training (SCST)",
    "best_of_n": "cross-entropy on the best of several samples (best of n)",
    "rloo": "REINFORCE leave-one-out (RLOO, by TRL)",
    "grpo": "group relative policy optimisation (GRPO, by TRL)",
}
WHAT_IT_DOES = {
    "questions": "A question generator: it reads a passage in which an answer is marked and writes the question that "
    "this answer answers.",
    "answers": "An answer extractor: it reads a passage in which a sentence is marked and writes the answers in it "
    "that people would ask about.",
    "multitask": "A generator of questions and answers: it writes the question to a marked answer, and the answers in "
    "a marked sentence.",
    "pairs": "A generator of question-answer pairs: it reads a passage and writes all its pairs at once.",
    "sets": "A generator of questions without given answers: it reads a passage, in which a sentence may be marked, "
    "and writes questions about it.",
}
BRIDGE = "The old bridge was built by Paula Klein in 1874."
MARKED = {  # for each input of a question generator: names and texts of the whole and of the part that is marked
    "paragraph_answer": ("passage", "answer", BRIDGE, "Paula Klein"),
    "sentence_answer": ("sentence", "answer", BRIDGE, "Paula Klein"),
    "paragraph_sentence": ("passage", "sentence", f"{BRIDGE} It fell in 1901.", "It fell in 1901."),
}


def marked_code(form: str) -> str:
    """Python lines that make `marked`, an input of this form (`rl_qg.generation.prompts`)."""
    if form not in MARKED:
        return f'marked = "{BRIDGE}"'
    whole, part, text, marked = MARKED[form]
    return f"""\
{whole}, {part} = "{text}", "{marked}"
start = {whole}.index({part})
marked = {whole}[:start] + f"{HIGHLIGHT} {{{part}}} {HIGHLIGHT}" + {whole}[start + len({part}) :]"""


def write_model_card(run_folder: Path) -> list[Path]:
    """Write a card beside every model of a run; return their paths. Call it again when the run has more files.

    A folder without `config.yaml` was not made by a command and gets no card.
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
                stream.write(ModelCardText(run, config, stage).card())
    return paths


def final_model(run_folder: Path) -> Path | None:
    folders = [run_folder / stage for stage in STAGES if (run_folder / stage / "config.json").exists()]
    return folders[-1] if folders else None


@dataclass(frozen=True)
class ModelCardText:
    """The card of one model of a run.

    Args:
        run: the content of the run's files.
        config: its `config.yaml`.
        stage: `ce` or `scst`.
    """

    run: ReportedRun
    config: Mapping[str, Any]
    stage: str

    def card(self) -> str:
        """Front matter for the Hub and the text, as Markdown."""
        text = resources.files("rl_qg.reports").joinpath("model_card_template.md").read_text(encoding="utf-8")
        template = Template(
            text, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        ask = self.config.get("ask", {})
        return template.render(
            front_matter=self._front_matter().to_yaml(),
            name=self.name,
            summary=self._summary(),
            task=self._task,
            location=self._location,
            strategy=f"{ask.get('granularity')}_{ask.get('mode')}",
            data=self._data(),
            training=self._training(),
            results=results_text(self.run, self.stage, self._kept_step),
            limits=limits_text(self.run, self.stage),
            base=shown(self._base),
            miniature=self._base.startswith("miniature:"),
            **({} if self._task in ("sets", "answers", "pairs") else self._code()),
        )

    # --- Front matter ---

    @property
    def folder(self) -> Path:
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

    @property
    def _task(self) -> str:
        is_of_sets = self.config.get("ask", {}).get("granularity")
        return "sets" if is_of_sets else str(self.config["model"].get("task", "questions"))

    def _summary(self) -> str:
        by_reward = f"by {ALGORITHMS[self.config.get('algorithm', 'scst')]} with an evaluation metric as reward"
        how = ["by cross-entropy on human questions"] if self.config["stages"] != "scst" else []
        return (
            f"{WHAT_IT_DOES[self._task]} `{shown(self._base)}` was trained with rl-qg "
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
        miniature = self._base.startswith("miniature:")
        return ModelCardData(
            license="apache-2.0" if miniature else "other",
            license_name=None if miniature else "of-base-model-and-data",
            library_name="transformers",
            base_model=self._base if is_on_hub(self._base) else None,
            datasets=[source for source in sources if is_on_hub(source)] or None,
            tags=["question-generation", "rl-qg", *(["reinforcement-learning"] if self._by_reward else [])],
            model_name=self.name,
            eval_results=results or None,
        )

    # --- Sections ---

    @property
    def _location(self) -> str:
        return self._repository or str(self.folder)

    def _code(self) -> dict[str, str]:
        """What differs between generators in the lines of Python that ask a question about a marked answer."""
        model, prompt = read_json(self.folder / "config.json"), read_json(self.folder / "prompt.json")
        seq2seq = model.get("is_encoder_decoder")
        prefix = PREFIXES["questions"] if self._task == "multitask" else prompt["prefix"]
        before, after = (
            json.dumps(text, ensure_ascii=False) if text else "" for text in (prefix, prompt["separator"])
        )
        return {
            "kind": "Seq2SeqLM" if seq2seq else "CausalLM",
            "marked": marked_code(prompt.get("input", WHOLE)),
            "input": " + ".join(filter(None, (before, "marked", after))),
            "decoding": self._decoding(),
            "without_prompt": "" if seq2seq else "[:, inputs.input_ids.shape[1] :]",
            "longest": str(prompt["max_source_length"]),
        }

    def _decoding(self) -> str:
        """Arguments of `generate` for greedy decoding, whatever the checkpoint's own generation settings are."""
        path = self.folder / "generation_config.json"
        shipped = read_json(path) if path.exists() else {}
        plain = {"num_beams": 1, "do_sample": False, **NO_RULES}
        changed = {key: value for key, value in plain.items() if shipped.get(key) not in (None, value)}
        if "src_lang" in read_json(self.folder / "tokenizer_config.json"):
            changed.pop("forced_bos_token_id", None)  # the language code
        rules = {"max_new_tokens": self.config["scst"]["max_new_tokens"], **changed}
        return ", ".join(f"{key}={value!r}" for key, value in rules.items())

    def _data(self) -> str:
        record = self.run.record
        rows = [[f"`{shown(name)}`", f"`{digest}`"] for name, digest in (record.get("data") or {}).items()]
        counts, leakage = record.part("examples"), record.part("leakage")
        train = record.part("data_report", "train")
        sentences = [f"{counts.count('gold')} questions for training", f"{counts.count('validation')} for validation"]
        if train.count("read") is not None:
            sentences.append(f"{train.count('kept')} of {train.count('read')} training records could be used")
        if leakage.count("train_examples_dropped") is not None:
            sentences.append(
                f"{leakage.count('train_examples_dropped')} training examples were left out because their passages "
                "are validation passages"
            )
        return f"{'; '.join(sentences)}.\n\n{as_markdown(['source', 'SHA-256'], rows)}"

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
            rows.append(["cross-entropy", self._schedule("ce")])
        if self._by_reward:
            rows.append([ALGORITHMS[self.config.get("algorithm", "scst")], self._schedule("scst")])
            rows += [["passages without questions", text]] if (text := unlabelled_use(self.run)) else []
            rows += [[f"`scst.{key}`", f"`{value}`"] for key, value in self._changed().items()]
            kept = self._trained.get("kept")
            if kept:
                rows.append(["model kept", f"step {kept['step']}, the best by {kept['measure']}"])
        rows.append(["made with", self._versions()])
        if not self._by_reward:
            return as_markdown(["setting", "value"], rows)
        return (
            f"Reward, with everything that can change its values:\n\n    {self._signature}\n\n"
            f"{as_markdown(['setting', 'value'], rows)}"
        )

    def _versions(self) -> str:
        versions, commit = self.run.record.get("versions") or {}, self.run.record.get("code", "commit")
        libraries = ("rl-qg", "torch", "transformers", "trl", "peft")
        present = [f"{name} {versions[name]}" for name in libraries if name in versions]
        return ", ".join([*present, *([f"commit {commit[:12]}"] if commit else [])])

    def _schedule(self, stage: str) -> str:
        options, peft = self.config[stage], self.config.get("peft", {})
        factor = 1.0 if peft.get("method", "none") == "none" else peft["learning_rate_factor"]
        epochs = options["epochs"]
        return f"{epochs:g} epoch{'' if epochs == 1 else 's'}, learning rate {factor * options['learning_rate']:g}"

    def _changed(self) -> dict[str, Any]:
        default = {field.name: field.default for field in fields(SCSTSettings)}
        plain = default.keys() - {"epochs", "learning_rate"}
        return {key: value for key, value in self.config["scst"].items() if key in plain and value != default[key]}

    # --- Fields of the files ---

    @property
    def _trained(self) -> Mapping[str, Any]:
        return self.run.trained.value

    @property
    def _kept_step(self) -> int | None:
        return (self._trained.get("kept") or {}).get("step")

    @property
    def _signature(self) -> str:
        return str(self.run.signature or self._trained.get("reward") or self.config["reward"].get("_target_"))

    @property
    def _reward_name(self) -> str:
        return self._signature.partition("|")[0]


def is_on_hub(name: str) -> bool:
    """Whether a name is that of a model or data set on the Hub, and not a local path or the embedded corpus."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    is_file = Path(name).suffix in (".json", ".jsonl", ".gz", ".parquet", ".csv", ".tsv")
    return name != "world" and not is_file and not Path(name).exists()


def shown(source: str) -> str:
    """A source as a card may show it: the last part of an absolute path, which would describe a machine."""
    return Path(source).name if Path(source).is_absolute() else source


# --- The Hugging Face Hub


log = logging.getLogger(__name__)


def check_repository(name: str | None) -> None:
    if name is None:
        return
    try:
        validate_repo_id(name)
    except HFValidationError:
        raise InputError(
            f"training.hub_model={name}: not a name of a Hub repository; write it as me/bart-qg"
        ) from None


def publish(run_folder: Path, repository: str | None, *, api: Any = None) -> list[Path]:
    """Write the model cards of a run, and upload its final model to `repository` when one is given; for the main
    process alone. May be called again when the run has more files.

    Args:
        run_folder: of a complete run.
        repository: such as `me/bart-qg`, created when it does not exist.
        api: a `huggingface_hub.HfApi`; None for the usual one, with the login of `hf auth login` or `HF_TOKEN`.
    """
    cards = write_model_card(run_folder)
    folder = final_model(run_folder)
    if repository is not None and folder is not None:
        _upload(folder, repository, api or HfApi())
    return cards


def finish_publishing(run_folder: Path, repository: str | None) -> None:
    """Do what `publish` does, if a complete run was killed before its cards were written."""
    models = [run_folder / name for name in ("ce", "scst") if (run_folder / name).is_dir()]
    if any(not (model / "README.md").exists() for model in models):
        publish(run_folder, repository)


def _upload(folder: Path, repository: str, api: Any) -> None:
    try:
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="rl-qg: model and card")
    except Exception as error:  # of any kind: the run is complete without the upload
        lines = str(error).strip().splitlines() or [type(error).__name__]
        log.warning(
            "training.hub_model=%s: not uploaded (%s); the run is complete: hf upload %s %s uploads it later",
            repository,
            lines[0],
            repository,
            folder,
        )
    else:
        log.info("train: %s is at https://huggingface.co/%s", folder, repository)
