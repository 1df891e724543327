"""Uploads the final model of a run, with its card, to the Hugging Face Hub."""

import logging
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.utils import HFValidationError, validate_repo_id

from rl_qg.reports.model_card import final_model, write_model_card
from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)


def check_repository(name: str | None) -> None:
    """Raise `InputError` for a name that no Hub repository can have."""
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
