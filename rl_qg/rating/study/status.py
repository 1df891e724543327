"""`rl-qg rate status`: how far a study is."""

import json
from dataclasses import asdict
from typing import Any

from rl_qg.rating.analysis.quality import PassRates, pass_rates
from rl_qg.rating.protocol import KINDS
from rl_qg.rating.study.export_stage import utc
from rl_qg.rating.study.store import Store, open_store
from rl_qg.settings.rating import RateStatusSettings


def print_status(settings: RateStatusSettings) -> None:
    """Print how far a study is, as text or JSON.

    Raises:
        InputError: there is no study.
    """
    store = open_store(settings.study)
    try:
        status = study_status(store)
    finally:
        store.close()
    print(json.dumps(status, ensure_ascii=False, indent=2) if settings.json else status_text(status))


def pass_rates_so_far(store: Store) -> PassRates:
    """The control of every rater who has submitted a task (`rl_qg.rating.analysis.quality`)."""
    with store.snapshot() as snapshot:
        return pass_rates(snapshot.ratings(), store.plan.protocol)


def study_status(store: Store) -> dict[str, Any]:
    """Everything that is known of how far a study is, as plain values."""
    progress, passed = asdict(store.progress()), asdict(pass_rates_so_far(store))
    times = {name: utc(progress[name]) for name in ("created", "retention_until", "next_expiry")}
    over = store.now() >= store.retention_until
    return progress | times | {"retention_over": over, "control": passed}


def status_text(status: dict[str, Any]) -> str:
    """What `study_status` says, in lines."""
    states, control = status["assignments"], status["control"]
    minutes, pay = status["minutes"], status["pay_per_hour"]
    lines = [
        f"study {status['study']}, since {status['created']}" + (" (paused)" if status["paused"] else ""),
        f"tasks        {status['tasks_done']} of {status['tasks']} done; of {status['wanted']} wanted: "
        + ", ".join(f"{count} {state}" for state, count in states.items()),
        f"raters       {_counts(status['raters'])}",
        f"ratings      {status['ratings']}, and {status['feedback']} texts of feedback",
        f"control      {control['passed']} passed, {control['failed']} failed, {control['undecided']} undecided, "
        f"of {control['raters']} raters who submitted",
        "minutes      " + ("nobody has submitted a task yet" if minutes is None else f"{minutes:.1f} a task (median)"),
    ]
    if pay is not None:
        lines.append(f"pay          {pay:.2f} {status['currency']} an hour at that median")
    for system, kinds in status["systems"].items():
        lines.append(
            f"system       {system}: " + ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kind in kinds)
        )
    if status["next_expiry"] is not None:
        lines.append(f"next expiry  {status['next_expiry']}, of {states['open']} open assignments")
    over = "over since" if status["retention_over"] else "until"
    hint = "; rl-qg rate forget expired=true ratings=true deletes them" if status["retention_over"] else ""
    return "\n".join([*lines, f"raters kept  {over} {status['retention_until']}{hint}"])


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none yet"
