"""Which validation passages choose the model of a run, and which judge it in `evaluation.json`.

The lowest of many losses, or the best BLEU-4, is lucky on the questions that chose it. So where a run keeps the model
that validation questions like best, one half of the validation passages chooses and the other half judges.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_qg.data.splits import Splits, choosing_passages
from rl_qg.runtime.json_files import read_json
from rl_qg.runtime.run_record import FILE
from rl_qg.settings import Settings

CHOICE = "model_choice"  # the field of run.json
OTHER, SAME = "other passages", "the same passages"
log = logging.getLogger(__name__)


def chosen_by(settings: Settings) -> str | None:
    """What chooses among the models of a run, None where the last one is kept."""
    if settings.stages == "ce":  # losses of two stages cannot be compared, so with both the last model starts SCST
        return "lowest validation loss" if settings.training.stop_after is None else None
    return None if settings.scst.stop_on is None else f"scst.stop_on={settings.scst.stop_on}"


def stored_choice(folder: Path) -> tuple[bool, Mapping[str, Any] | None]:
    """Whether the run has begun, and the choice that its record holds."""
    record = folder / FILE
    return (True, read_json(record).get(CHOICE)) if record.exists() else (False, None)


def with_choice(settings: Settings, splits: Splits, begun: bool, stored: Mapping[str, Any] | None) -> Splits:
    """The splits with the passages that choose the model, and with what the run's record says (`choice`): what chooses
    (`by`), and `on` which passages, `other passages` than those judged or `the same passages`.

    There are other passages if both halves have ten or more. A run that began on the same passages, as those of
    earlier versions did, stays with them.
    """
    by = chosen_by(settings)
    if by is None:
        return splits
    choosing = choosing_passages(splits.validation, settings.data.seed)
    if (begun and (stored is None or stored["on"] == SAME)) or not choosing:
        log.warning(
            "%s chooses the model on the validation passages that evaluation.json judges it on, so its numbers favour "
            "the model; 20 validation passages would be enough to divide them",
            by,
        )
        return replace(splits, choice={"by": by, "on": SAME})
    log.info("%s chooses the model on %d validation passages; evaluation.json judges the others", by, len(choosing))
    return replace(splits, choosing=choosing, choice={"by": by, "on": OTHER, "passages": len(choosing)})
