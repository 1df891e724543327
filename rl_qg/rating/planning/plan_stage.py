"""From questions of several systems to tasks for raters.

    rl-qg rate plan 'questions={ce: ce.jsonl, scst: scst.jsonl}' gold=dev.json protocol=qascore items=100 output=plan

Writes `hits.jsonl` and `plan.json`, whose bytes depend on the settings and the files alone, and prints how many raters
the plan needs, what they are paid, what was left out, and the smallest difference between systems that it can show.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rl_qg.rating.plan_files import PLAN, write_plan_files
from rl_qg.rating.planning.hits import Tasks, counts_of, make_tasks
from rl_qg.rating.planning.plan_power import (
    ENOUGH_RATINGS,
    LEVEL,
    PASS_RATE,
    POWER,
    Detectable,
    Effort,
    Noise,
    detectable_difference,
    effort_of,
    tasks_for_control,
)
from rl_qg.rating.planning.plan_questions import StudyQuestions, read_questions
from rl_qg.rating.protocol import DEGRADED, KINDS, ORDINARY, Protocol, Texts
from rl_qg.runtime.errors import InputError
from rl_qg.settings import RatePlanSettings
from rl_qg.text.languages import code_of
from rl_qg.text.words import counted

LEAST_PAY = {"USD": 8.0, "GBP": 6.0}  # an hour (docs.prolific.com)
MINUTES, DAYS = "{minutes}", "{retention_days}"  # in texts of a protocol


def write_plan(settings: RatePlanSettings, protocol: Protocol) -> None:
    """Write the plan to `settings.output` and print what it takes.

    Raises:
        InputError: no questions or output, a file that cannot be read, nothing that can be rated, or a folder with
            another plan.
    """
    if not settings.output:
        raise InputError("output has no value; name a folder, such as output=plan")
    folder = Path(settings.output)
    language, raters = code_of(settings.language), settings.raters or protocol.raters_per_hit
    study = read_questions(settings.questions, settings.gold)
    tasks = make_tasks(study, protocol.recipe, language=language, seed=settings.seed, items=settings.items)
    effort = effort_of(tasks.hits, protocol, raters, settings.pay_per_hour, settings.currency)
    noise = noise_of(settings, tasks)
    found = detectable_difference(tasks.hits, study.systems, raters, noise, settings.seed)
    protocol = with_numbers(replace(protocol, raters_per_hit=raters), effort.minutes, settings.retention_days)
    record = {
        "study": settings.study or folder.resolve().name,
        "seed": settings.seed,
        "language": language,
        "raters_per_hit": raters,
        "retention_days": settings.retention_days,
        **_counts(study, tasks, raters, len(protocol.criteria)),
        **_estimates(effort, settings.pay_per_hour, found, noise),
    }
    needed = tasks_for_control(tasks.hits, protocol.control, sum(one.control for one in protocol.criteria))
    try:
        write_plan_files(folder, record, protocol, tasks.hits)
    except OSError as error:
        raise InputError(f"output={folder}: cannot be written ({error.strerror}); name another folder") from None
    print("\n".join(summary(record, protocol, needed)))
    print(f"done: {folder / PLAN}; next: rl-qg rate serve plan={folder}")


def noise_of(settings: RatePlanSettings, tasks: Tasks) -> Noise:
    """How much ratings will vary; without degraded questions no rater is tested."""
    tested = any(item.kind == DEGRADED for hit in tasks.hits for item in hit.items)
    pass_rate = settings.pass_rate or (PASS_RATE if tested else 1.0)
    return Noise(settings.question_sd, settings.rating_sd, pass_rate)


def with_numbers(protocol: Protocol, minutes: float, days: int) -> Protocol:
    """The protocol with the minutes of a task and the days of retention, also where its texts name them."""

    def filled(texts: Texts) -> Texts:
        pairs = ((MINUTES, f"{max(1, round(minutes))}"), (DAYS, str(days)))
        found = dict(texts)
        for mark, number in pairs:
            found = {code: text.replace(mark, number) for code, text in found.items()}
        return found

    return replace(
        protocol,
        minutes_per_hit=round(minutes, 1),
        instructions=tuple(map(filled, protocol.instructions)),
        consent=filled(protocol.consent),
    )


def _counts(study: StudyQuestions, tasks: Tasks, raters: int, criteria: int) -> dict[str, Any]:
    items = [item for hit in tasks.hits for item in hit.items]
    return {
        "hits": len(tasks.hits),
        "items": len(items),
        "ratings": len(items) * raters * criteria,
        "systems": counts_of(tasks.hits, study.systems),
        "shared_questions": sum(item.kind == ORDINARY and len(item.systems) > 1 for item in items),
        "nearer_hits": {str(distance): count for distance, count in sorted(tasks.nearer.items())},
        "left_out": {reason: count for reason, count in (study.left_out + tasks.left_out).items() if count},
    }


def _estimates(effort: Effort, pay_per_hour: float, found: Detectable | None, noise: Noise) -> dict[str, Any]:
    return {
        "minutes": round(effort.minutes, 1),
        "cost": {
            "currency": effort.currency,
            "pay_per_hour": pay_per_hour,
            "assignments": effort.assignments,
            "hours": round(effort.hours, 1),
            "pay_per_hit": round(effort.per_hit, 2),
            "total": round(effort.total, 2),
        },
        "detectable": {
            "unit": "z, mean over criteria",
            "power": POWER,
            "level": LEVEL,
            **asdict(noise),
            **({} if found is None else asdict(found)),
            **({"one": None, "holm": None} if found is None else _rounded(found)),
        },
    }


def _rounded(found: Detectable) -> dict[str, float]:
    return {"one": round(found.one, 3), "holm": round(found.holm, 3)}


# --- Output ---


def summary(record: Mapping[str, Any], protocol: Protocol, needed: int | None = None) -> list[str]:
    """The plan in a few lines; `needed`: tasks that a rater must have before the control can pass anybody."""
    raters, cost = record["raters_per_hit"], record["cost"]
    names = ", ".join(criterion.name for criterion in protocol.criteria)
    lines = [
        f"{record['study']} by the protocol {protocol.name}: {counted(record['hits'], 'task')}, "
        f"{counted(record['items'], 'item')}, {counted(raters, 'rater')} each: {counted(record['ratings'], 'rating')} "
        f"of {names}",
        f"raters: from {raters:,}, who rate every task, to {cost['assignments']:,} with one task each",
        f"time and pay: {record['minutes']:g} minutes a task, {cost['hours']:,g} hours in all; at "
        f"{cost['pay_per_hour']:g} {cost['currency']} an hour {cost['pay_per_hit']:,.2f} a task and "
        f"{cost['total']:,.0f} {cost['currency']} in all, without fees of a panel",
        *_table(record),
    ]
    if record["shared_questions"]:
        lines.append(f"questions that several systems asked alike, shown once: {record['shared_questions']:,}")
    if nearer := record["nearer_hits"]:
        lines.append(
            f"forms of a question are {protocol.recipe.distance} places apart or more, in "
            f"{counted(sum(nearer.values()), 'short task')} {min(nearer, key=int)} or more"
        )
    lines += [f"left out: {reason}: {count:,}" for reason, count in record["left_out"].items()]
    if needed is not None:
        advice = f"let raters have as many: rl-qg rate serve tasks_per_rater={needed}"
        if needed > record["hits"]:
            advice = "there are fewer"
        lines.append(f"note: the control can pass nobody with fewer than {needed:,} of these tasks; {advice}")
    return [*lines, *_power_lines(record, protocol)]


def _table(record: Mapping[str, Any]) -> list[str]:
    """Items of each system by kind, and its ratings."""
    systems = record["systems"]
    kinds = [kind for kind in KINDS if any(counts[kind] for counts in systems.values())]
    width = max(map(len, ["system", *systems]))
    rows = [f"{'system':<{width}}" + "".join(f"  {kind:>9}" for kind in kinds)]
    for system, counts in systems.items():
        rows.append(f"{system:<{width}}" + "".join(f"  {counts[kind]:>9,}" for kind in kinds))
    return rows


def _power_lines(record: Mapping[str, Any], protocol: Protocol) -> list[str]:
    found = record["detectable"]
    lines = []
    if found["one"] is None:
        compared = sum(counts[ORDINARY] > 0 for counts in record["systems"].values())
        why = "the systems share too few passages" if compared > 1 else "there are no two systems"
        lines.append(f"smallest difference that is found: none; {why} for a comparison")
    else:
        share = "" if found["pass_rate"] == 1 else f", with {found['pass_rate']:.0%} of the tasks counted"
        holm = (
            "" if found["pairs"] == 1 else f"; {found['holm']:.2f} with Holm's correction over {found['pairs']} pairs"
        )
        lines.append(
            f"smallest difference that is found with probability {POWER:g} (simulated{share}): {found['one']:.2f} z "
            f"between two systems{holm}"
        )
    if not any(counts[DEGRADED] for counts in record["systems"].values()):
        lines.append("note: no degraded questions, so raters cannot be tested")
    few = {
        system: count
        for system, counts in record["systems"].items()
        if 0 < (count := counts[ORDINARY] * record["raters_per_hit"]) < ENOUGH_RATINGS
    }
    if few:
        system, count = min(few.items(), key=lambda pair: pair[1])
        lines.append(f"note: {system} gets {count:,} ratings of each criterion; {ENOUGH_RATINGS} are recommended "
                     "(Graham et al. 2020)")  # fmt: skip
    least = LEAST_PAY.get(record["cost"]["currency"])
    if least and 0 < record["cost"]["pay_per_hour"] < least:
        lines.append(f"note: Prolific asks for {least:g} {record['cost']['currency']} an hour or more")
    if record["language"] != protocol.language and protocol.practice:
        lines.append(f"note: the practice questions of the protocol are in {protocol.language}")
    return lines
