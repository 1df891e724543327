"""The data card of an augmented set, and its upload to the Hugging Face Hub."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.utils import HFValidationError, validate_repo_id

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, read_json
from rl_qg.runtime.resumable_lines import note_path

log = logging.getLogger(__name__)
TABLE = "data/train.parquet"
LICENCE = (
    "Passages and human questions keep the licence of their source: name it here before you publish this set. "
    "Generated questions were written by a model from these passages; nobody has checked them one by one."
)


def card_path(output: Path) -> Path:
    """The path of the card of `augmented.json`: `augmented.card.md` beside it."""
    return output.with_name(f"{output.stem}.card.md")


def write_data_card(report: Mapping[str, Any], output: Path) -> Path:
    """Write the card of a report (`rl_qg.augmentation.augment`); return its path."""
    path = card_path(output)
    with atomic_writer(path) as stream:
        stream.write(data_card(report))
    return path


def data_card(report: Mapping[str, Any]) -> str:
    """Front matter for the Hub and the text, as Markdown."""
    front = {
        "pretty_name": "Augmented question answering data",
        "license": "other",
        "task_categories": ["question-answering"],
        "tags": ["question-generation", "synthetic", "rl-qg"],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": TABLE}]}],
    }
    sections = {
        "Contents": _contents(report),
        "Generator": _generator(report),
        "Filters": _filters(report),
        "Rewards and readers": _measures(report),
        "Sampling": _sampling(report),
        "Human questions": _gold(report),
        "Licence": LICENCE,
    }
    text = "\n\n".join(f"## {title}\n\n{body}" for title, body in sections.items())
    matter = yaml.safe_dump(front, sort_keys=False)
    return f"---\n{matter}---\n\n# {front['pretty_name']}\n\n{_summary(report)}\n\n{text}\n"


def _summary(report: Mapping[str, Any]) -> str:
    return (
        f"{report['gold']:,} human and {report['sampled']:,} generated questions for extractive question answering, "
        "filtered and merged by `rl-qg augment`."
    )


def _contents(report: Mapping[str, Any]) -> str:
    output = report["output"]
    return (
        "Rows have SQuAD's columns (`id, title, context, question, answers{text, answer_start}`). Ids of generated "
        "questions begin with `synthetic-`; the Parquet form also has `source` (gold or synthetic), `candidate` (the "
        "rank among those of its answer), `logprob` and the measures named below.\n\n"
        f"`{Path(output['path']).name}`: {report['written']:,} questions, SHA-256 `{output['sha256']}`."
    )


def _generator(report: Mapping[str, Any]) -> str:
    questions = report["inputs"]["questions"]
    path = Path(questions["path"])
    note = note_path(path)
    lines = [f"Candidates: `{path.name}`, SHA-256 `{questions['sha256']}`."]
    if not note.exists():
        return "\n".join([*lines, "No file records which generator wrote them: name it here."])
    recorded = read_json(note)
    settings = [f"- {name}: {_code(value)}" for name, value in recorded.items() if name != "sources"]
    return "\n".join(
        [
            *lines,
            "They were written by `model_path` (`model` is the hash of its weights, `reward` what it learned from):",
            "",
            *settings,
        ]
    )


def _filters(report: Mapping[str, Any]) -> str:
    rows = ["| step | questions |", "| --- | ---: |", f"| candidates | {report['candidates']:,} |"]
    rows += [f"| dropped: {reason} | {count:,} |" for reason, count in report["dropped"].items()]
    rows += [f"| kept | {report['kept']:,} |", f"| sampled | {report['sampled']:,} |"]
    filters = {name: given for name, given in report["settings"]["filters"].items() if given is not None}
    options = yaml.safe_dump(filters, sort_keys=False).strip()
    return "\n".join([*rows, "", "With these options:", "", "```yaml", options, "```"])


def _measures(report: Mapping[str, Any]) -> str:
    lines = [
        f"- {name}: {_code(measure.get('signature') or measure.get('reader'))} ({measure['measured']:,} candidates)"
        for name, measure in report["measures"].items()
    ]
    return "\n".join(lines) or "No model scored these questions after they were generated."


def _sampling(report: Mapping[str, Any]) -> str:
    settings = report["settings"]
    method = {
        "uniform": "A uniform sample of the kept candidates",
        "reward": f"The kept candidates with the highest `{settings['sample_by']}`",
        "diverse": f"Maximal marginal relevance by `{settings['sample_by']}`, with weight "
        f"{settings['sample_relevance']} on it",
    }[settings["sampling"]]
    count = f"{report['sampled']:,} of {report['kept']:,}, {report['requested']:,} requested"
    return f"{method}: {count}; seed {settings['seed']}."


def _gold(report: Mapping[str, Any]) -> str:
    gold = report["inputs"]["gold"]
    if not gold["examples"]:
        return "None: all questions are generated."
    sources = [f"- `{Path(name).name}`: SHA-256 `{value}`" for name, value in gold.get("sources", {}).items()]
    return "\n".join(
        [f"{gold['examples']:,} questions, SHA-256 of their content `{gold['sha256']}`.", "", *sources]
    ).strip()


def _code(value: Any) -> str:
    return f"`{value}`"


# --- the Hub


def check_dataset_name(repository: str | None) -> None:
    if repository is None:
        return
    try:
        validate_repo_id(repository)
    except HFValidationError:
        raise InputError(
            f"augment.hub_dataset={repository}: not a name of a Hub repository; write it as me/name"
        ) from None


def publish(card: Path, table: Path, repository: str, *, api: Any = None) -> bool:
    """Upload card and Parquet table to a Hub data set in one commit; `datasets.load_dataset(repository)` reads it.

    A failed upload is one warning, since the local files are complete. Returns whether the upload succeeded.

    Args:
        card: written by `write_data_card`.
        table: a `.parquet` of `rl_qg.augmentation.augment`.
        repository: such as `me/squad-augmented`; created if it does not exist.
        api: a `huggingface_hub.HfApi`; None for the default one, with the login of `hf auth login` or `HF_TOKEN`.
    """
    try:
        api = api or HfApi()
        api.create_repo(repository, repo_type="dataset", exist_ok=True)
        api.create_commit(
            repository,
            [
                CommitOperationAdd("README.md", card.read_bytes()),
                CommitOperationAdd(TABLE, str(table)),
            ],
            commit_message="rl-qg: augmented data and card",
            repo_type="dataset",
        )
    except Exception as error:  # of any kind: the local files are complete
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        log.warning(
            "augment.hub_dataset=%s: not uploaded (%s); the local files are complete, the same command tries again",
            repository,
            reason,
        )
        return False
    log.info("augment: the data set is at https://huggingface.co/datasets/%s", repository)
    return True
