"""The model card of a run: `README.md` in `ce/` and `scst/`, made from the run's files alone; the upload."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCardData
from huggingface_hub.utils import HFValidationError, validate_repo_id

from rewards.errors import first_line
from rl_qg.data.formats import stem_and_kind
from rl_qg.generation.generator import NO_RULES
from rl_qg.generation.prompts import HIGHLIGHT, WHOLE
from rl_qg.generation.published import format_of, licence_of
from rl_qg.generation.tasks import PREFIXES
from rl_qg.pages.plots import ReportedMean
from rl_qg.pages.results import as_markdown, text_template
from rl_qg.reports import run_files
from rl_qg.reports.views import equal_conditions, reader_label, sentence, unlabelled_use
from rl_qg.runtime.files import read_record, write_text
from rl_qg.scoring.held_out import SeriesChange, rises
from rl_qg.settings import SCSTSettings

log = logging.getLogger(__name__)
STAGES = ("ce", "scst")
LIBRARIES = ("rl-qg", "torch", "transformers", "trl", "peft")
COLUMNS = {"ce": "cross-entropy", "scst": "by reward", "gold": "human questions"}
ORACLE_MEASURES = [run_files.ReportedMeasure(key, *how) for key, how in run_files.TABLES["oracle"].items()]


def write_model_card(run_folder: Path) -> list[Path]:
    """Write a card beside every model of a run, and return their paths; a folder without `config.yaml` gets none."""
    if not (run_folder / "config.yaml").exists():
        return []
    run = run_files.read_run(run_folder)
    paths = [model / "README.md" for model in _models(run_folder)]
    for path in paths:
        write_text(path, _card(run, path.parent.name))
    return paths


def _models(run_folder: Path) -> list[Path]:
    return [run_folder / stage for stage in STAGES if (run_folder / stage / "config.json").exists()]


def final_model(run_folder: Path) -> Path | None:
    return next(reversed(_models(run_folder)), None)


def _card(run: run_files.ReportedRun, stage: str) -> str:
    config, folder = run.settings, run.folder / stage
    base, ask = str(config["model"]["path"]), config.get("ask", {})
    task = "sets" if ask.get("granularity") else str(config["model"].get("task", "questions"))
    # The model that goes to the Hub has the name of its repository, others those of run and stage.
    repository = config.get("training", {}).get("hub_model") if final_model(run.folder) == folder else None
    name = repository or f"{run.folder.resolve().name}/{stage}"
    signature = str(run.signature or run.trained.value.get("reward") or config["reward"].get("_target_"))
    rewards, data = run.metrics.self_critical(f"eval_{run_files.REWARD}"), run.record.get("data") or {}
    return text_template("rl_qg.reports", "model_card_template.md").render(
        front_matter=_front_matter(run, stage, name, base, signature).to_yaml(),
        run=run,
        config=config,
        name=name,
        task=task,
        location=repository or folder,
        strategy=f"{ask.get('granularity')}_{ask.get('mode')}",
        base=shown(base),
        by_reward=stage == "scst",
        algorithm=run_files.TABLES["algorithms"][config.get("algorithm", "scst")],
        miniature=base.startswith("miniature:"),
        sources=as_markdown(
            ["source", "SHA-256", "licence"],
            [[f"`{shown(key)}`", f"`{digest}`", _licence(key.partition(" (")[0])] for key, digest in data.items()],
        ),
        licence=_licence(base),
        signature=signature,
        **_training(run),
        results=_results(run, ["ce", "scst"] if stage == "scst" else ["ce"]),
        readers=_readers(run),
        conditions=equal_conditions(run),
        sentence=sentence(run),
        wrong=[
            f"{run_files.BY_KEY[key].label} {run_files.BY_KEY[key].moved(change)}"
            for key, change in run_files.diverging(run).items()
        ],
        too_few=SeriesChange.of(rewards) is None,
        rose=rises(rewards),
        **({} if task in ("sets", "answers", "pairs") else _code(run, folder, task)),
    )


def _licence(source: str) -> str:
    return licence_of(source) or "not known here"


def _front_matter(run: run_files.ReportedRun, stage: str, name: str, base: str, signature: str) -> ModelCardData:
    report = run.record.part("data_report")
    sources = report.part("train").get("sources") or []
    measures = {"bleu4": "BLEU-4", "rouge_l": "ROUGE-L", "reward": signature.partition("|")[0]}
    results = [
        EvalResult(
            task_type="text-generation",
            task_name="question generation",
            dataset_type="custom",
            dataset_name=", ".join(map(shown, report.part("validation").get("sources") or ["validation"])),
            metric_type=kind,
            metric_name=label,
            metric_value=round(estimate.mean, 6),
        )
        for kind, label in measures.items()
        if (estimate := run.measured(stage, kind)) is not None
    ]
    miniature = base.startswith("miniature:")
    return ModelCardData(
        license="apache-2.0" if miniature else "other",
        license_name=None if miniature else "of-base-model-and-data",
        library_name="transformers",
        base_model=base if is_on_hub(base) else None,
        datasets=[source for source in sources if is_on_hub(source)] or None,
        tags=["question-generation", "rl-qg", *(["reinforcement-learning"] if stage == "scst" else [])],
        model_name=name,
        eval_results=results or None,
    )


def _results(run: run_files.ReportedRun, columns: list[str]) -> str:
    """The measures of the models of these stages, as a Markdown table.

    They come from `evaluation.json`, or where there is none from the last evaluations of training, up to that of the
    model that was kept as the best; "" where there was none.
    """
    if run.evaluation.count("examples") is None:
        return _results_of_training(run, columns)
    columns = [name for name in (*columns, "gold") if run.evaluation.get("models", name) is not None]
    fields = [(one, ["reward"] if one.key == run_files.REWARD else [one.key]) for one in run_files.MEASURES]
    fields += [(one, ["oracle", one.key]) for one in ORACLE_MEASURES]
    return _results_table(columns, ((one, [run.measured(name, *field) for name in columns]) for one, field in fields))


def _results_table(
    columns: Sequence[str], rows: Iterable[tuple[run_files.ReportedMeasure, list[ReportedMean | None]]]
) -> str:
    lines = [[one.label, *(_cell(one.text, mean) for mean in means)] for one, means in rows if any(means)]
    return as_markdown(["", *(COLUMNS[name] for name in columns)], lines)


def _results_of_training(run: run_files.ReportedRun, columns: Sequence[str]) -> str:
    kept_step = (run.trained.value.get("kept") or {}).get("step")
    last = {}
    for line in run.metrics.lines:
        is_later = kept_step is not None and line.get("stage") == "scst" and (line.number("step") or 0) > kept_step
        if line.get("eval_loss") is not None and not is_later:
            last[str(line.get("stage"))] = line
    columns = [name for name in columns if name in last]
    rows = ((one, [last[name].estimate(one.field) for name in columns]) for one in run_files.MEASURES)
    return _results_table(columns, rows) if columns else ""


def _readers(run: run_files.ReportedRun) -> str:
    rows = [
        [
            reader_label(run, name),
            *(_cell("{:.1f}".format, run.reader_score(name, score)) for score in run_files.SCORES),
            run.qa[name].count("updates") or "",
        ]
        for name in run.readers
    ]
    return as_markdown(["reader trained on", *run_files.SCORES.values(), "updates"], rows) if rows else ""


def _cell(text: Callable[[float], str], mean: ReportedMean | None) -> str:
    if mean is None:
        return ""
    if mean.low is None or mean.high is None:
        return text(mean.mean)
    return f"{text(mean.mean)} ({text(mean.low)} to {text(mean.high)})"


def _training(run: run_files.ReportedRun) -> dict[str, Any]:
    """What the table of the training says."""
    config, training, peft = run.settings, run.settings["training"], run.settings.get("peft", {})
    versions, commit = run.record.get("versions") or {}, run.record.get("code", "commit")
    adapted = peft.get("method", "none") != "none"

    def schedule(stage: str) -> str:
        epochs, rate = config[stage]["epochs"], config[stage]["learning_rate"]
        rate *= peft["learning_rate_factor"] if adapted else 1.0
        return f"{epochs:g} epoch{'' if epochs == 1 else 's'}, learning rate {rate:g}"

    processes = run.record.count("hardware", "world_size") or 1
    scheduled = ("epochs", "learning_rate")
    defaults = {field.name: field.default for field in fields_of(SCSTSettings) if field.name not in scheduled}
    made_with = [f"{name} {versions[name]}" for name in LIBRARIES if name in versions]
    return {
        "contexts": training["batch_size"] * training["gradient_accumulation_steps"] * processes,
        "adapted": adapted,
        "schedule": schedule,
        "unlabelled": unlabelled_use(run),
        "changed": {key: value for key, value in config.get("scst", {}).items() if value != defaults.get(key, value)},
        "kept": run.trained.value.get("kept"),
        "made_with": [*made_with, *([f"commit {commit[:12]}"] if commit else [])],
    }


def marked_code(form: str) -> str:
    """Python lines that make `marked`, an input of this form (`rl_qg.generation.prompts`)."""
    if form not in run_files.TABLES["marked"]:
        return 'marked = "The old bridge was built by Paula Klein in 1874."'
    whole, part, text, marked = run_files.TABLES["marked"][form]
    return f"""\
{whole}, {part} = "{text}", "{marked}"
start = {whole}.index({part})
marked = {whole}[:start] + f"{HIGHLIGHT} {{{part}}} {HIGHLIGHT}" + {whole}[start + len({part}) :]"""


def _code(run: run_files.ReportedRun, folder: Path, task: str) -> dict[str, str]:
    """What differs between generators in the lines of Python that ask a question about a marked answer."""
    prompt = read_record(folder / "prompt.json")
    seq2seq = read_record(folder / "config.json").get("is_encoder_decoder")
    prefix = PREFIXES["questions"] if task == "multitask" else prompt["prefix"]
    before, after = (json.dumps(text, ensure_ascii=False) if text else "" for text in (prefix, prompt["separator"]))
    # Greedy decoding, whatever the checkpoint's own generation settings are.
    path = folder / "generation_config.json"
    shipped = read_record(path) if path.exists() else {}
    plain = {"num_beams": 1, "do_sample": False, **NO_RULES}
    marked = marked_code(prompt.get("input", WHOLE))
    if (published := format_of(prompt.get("format", ""))) and published.before:
        marked = f"{marked.splitlines()[0]}\nmarked = {published.before!r}.format(answer) + passage"
    changed = {key: value for key, value in plain.items() if shipped.get(key) not in (None, value)}
    if "src_lang" in read_record(folder / "tokenizer_config.json"):
        changed.pop("forced_bos_token_id", None)  # the language code
    rules = {"max_new_tokens": run.settings["scst"]["max_new_tokens"], **changed}
    return {
        "kind": "Seq2SeqLM" if seq2seq else "CausalLM",
        "marked": marked,
        "input": " + ".join(filter(None, (before, "marked", after))),
        "decoding": ", ".join(f"{key}={value!r}" for key, value in rules.items()),
        "without_prompt": "" if seq2seq else "[:, inputs.input_ids.shape[1] :]",
        "longest": str(prompt["max_source_length"]),
    }


def is_on_hub(name: str) -> bool:
    """Whether a name is that of a model or data set on the Hub, and not a local path or the embedded corpus."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return name != "world" and not stem_and_kind(Path(name))[1] and not Path(name).exists()


def shown(source: str) -> str:
    """A source as a card may show it: the last part of an absolute path, which would describe a machine."""
    return Path(source).name if Path(source).is_absolute() else source


def publish(run_folder: Path, repository: str | None, *, api: Any = None) -> list[Path]:
    """Write the model cards of a run, and upload its final model to `repository` (such as `me/bart-qg`, created when
    it does not exist) when one is given; for the main process alone. May be called again when the run has more files.

    `api` is a `huggingface_hub.HfApi`; None for the usual one, with the login of `hf auth login` or `HF_TOKEN`.
    """
    cards, folder = write_model_card(run_folder), final_model(run_folder)
    if repository is None or folder is None:
        return cards
    try:
        api = api or HfApi()
        api.create_repo(repository, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="rl-qg: model and card")
        log.info("train: %s is at https://huggingface.co/%s", folder, repository)
    except Exception as error:  # of any kind: the run is complete without the upload
        later = f"the run is complete: hf upload {repository} {folder} uploads it later"
        log.warning("training.hub_model=%s: not uploaded (%s); %s", repository, first_line(error), later)
    return cards


def finish_publishing(run_folder: Path, repository: str | None) -> None:
    """Do what `publish` does, if a complete run was killed before its cards were written."""
    models = [run_folder / name for name in STAGES if (run_folder / name).is_dir()]
    if any(not (model / "README.md").exists() for model in models):
        publish(run_folder, repository)
