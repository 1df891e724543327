"""The data card of an augmented set, and its upload to the Hugging Face Hub."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import CommitOperationAdd, HfApi
from jinja2 import Template

from rewards.errors import first_line
from rl_qg.generation.published import licence_of
from rl_qg.runtime.files import read_record, write_text
from rl_qg.runtime.resumable_lines import note_path

log = logging.getLogger(__name__)
TABLE = "data/train.parquet"


def card_path(output: Path) -> Path:
    return output.with_name(f"{output.stem}.card.md")


def write_data_card(report: Mapping[str, Any], output: Path) -> Path:
    path = card_path(output)
    write_text(path, data_card(report))
    return path


def data_card(report: Mapping[str, Any]) -> str:
    path = Path(report["inputs"]["questions"]["path"])
    filters = {name: given for name, given in report["settings"]["filters"].items() if given is not None}
    sources = report["inputs"]["gold"].get("sources", {})
    template = Path(__file__).with_name("data_card_template.md").read_text(encoding="utf-8")
    return Template(template, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True).render(
        report=report,
        table=TABLE,
        output=Path(report["output"]["path"]).name,
        questions=path.name,
        made_by=read_record(note_path(path)) if note_path(path).exists() else None,
        filters=yaml.safe_dump(filters, sort_keys=False).strip(),
        sources=[(Path(name).name, value, licence_of(name.partition(" (")[0])) for name, value in sources.items()],
    )


def publish(card: Path, table: Path, repository: str, *, api: Any = None) -> None:
    """Upload card and Parquet table to a Hub data set in one commit; `datasets.load_dataset(repository)` reads it.

    A failed upload is one warning, since the local files are complete. The `repository`, such as
    `me/squad-augmented`, is created if it does not exist. `api` is a `huggingface_hub.HfApi`; None: the default one,
    with the login of `hf auth login` or `HF_TOKEN`.
    """
    try:
        api = api or HfApi()
        api.create_repo(repository, repo_type="dataset", exist_ok=True)
        files = [CommitOperationAdd("README.md", card.read_bytes()), CommitOperationAdd(TABLE, str(table))]
        api.create_commit(repository, files, commit_message="rl-qg: augmented data and card", repo_type="dataset")
        log.info("augment: the data set is at https://huggingface.co/datasets/%s", repository)
    except Exception as error:  # of any kind: the local files are complete
        log.warning(
            "augment.hub_dataset=%s: not uploaded (%s); the local files are complete, the same command tries again",
            repository,
            first_line(error),
        )
