"""The page of results, from the files of the parts that there are.

python experiments/gpu/table.py --results experiments/gpu/results --output experiments/speed/gpu.md
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PARTS = ("parity", "step", "decode", "rewards", "launch", "server", "curve")
PRECISIONS = ("float32", "TF32", "bf16")
TITLE = """# On a GPU

Written by `experiments/gpu/table.py` from what [experiments/gpu](../gpu/README.md) has measured; what the words mean
stands there.
"""
NOTHING = "\nNo GPU has run it yet.\n"
Found = Mapping[str, Any]  # measurements by name


def at(value: Any, *keys: str) -> Any:
    """What is under the keys; None where something is missing."""
    for key in keys:
        value = None if value is None else value.get(key)
    return value


def shown(value: float | None, digits: int = 2) -> str:
    """With so many digits after the point; large numbers without any."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}f}"


def small(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def ratio(one: float | None, other: float | None, factor: float = 1.0) -> float | None:
    return factor * one / other if one and other else None


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; none if it has no row."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield from ("", f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns), *lines)


def named(found: Found, *begin: str) -> Iterator[tuple[list[str], Any]]:
    """The measurements whose names begin like this, with the other parts of their names."""
    for name, value in found.items():
        parts = name.split(" | ")
        if parts[: len(begin)] == [*begin] and value is not None:
            yield parts[len(begin) :], value


# --- a function for each part


def parity(found: Found) -> Iterator[str]:
    yield from table(
        ("one step, GPU against CPU", "loss", "gradient", "of one weight at most", "same greedy / sampled tokens"),
        (
            (
                size,
                *(small(step[f"{kind}_difference"]) for kind in ("loss", "gradient", "largest_gradient")),
                " / ".join(shown(share, 3) for share in step["same_tokens"].values()),
            )
            for (size,), step in named(found, "step")
        ),
    )
    yield from table(
        ("float32 run", "equal, bit for bit", "weights that differ", "by at most"),
        (
            (
                name,
                "yes" if run["equal"] else "no",
                f"{run['differing']} of {run['of']}",
                small(run["largest_difference"]),
            )
            for name, run in found.items()
            if name.startswith("run ") and run
        ),
    )
    yield from table(
        ("scores, GPU against CPU", "models", "rows", "largest difference", "at most 1e-4"),
        (
            (
                reward,
                models,
                str(score["rows"]),
                small(score["largest_difference"]),
                "yes" if score["largest_difference"] <= 1e-4 else "**no**",
            )
            for (models, reward), score in named(found, "scores")
        ),
    )
    if waits := found.get("waits"):
        yield from ("", f"The host waits {waits['total']} times in one step:")
        yield from table(("line", "times"), ((f"`{line}`", str(count)) for line, count in waits["by_line"].items()))


def step(found: Found) -> Iterator[str]:
    yield from peaks(found)
    yield from table(
        (
            *("generator", "batch", "type", "straightforward, s", "trainer, s, first / later epochs"),
            *("rollout", "reward", "update", "times as fast", "floor, s", "of the peak", "memory, GiB"),
        ),
        (
            step_row(found, name, batch, precision, value)
            for (name, batch, precision, way), value in fully_named(found, 4)
            if way == "trainer"
        ),
    )
    for (name, batch, precision, of_reward), of in named(found, "profile"):
        yield from (
            "",
            f"One step of {name}, batch {batch}, {precision}, the reward in {of_reward}, in PyTorch's profiler, which "
            f"slows the host: {shown(of['seconds'], 3)} s, in which the GPU works {shown(of['gpu_seconds'], 3)} s; "
            f"{of['launches']:,} launches.",
        )
        rows = ((f"`{key}`", str(calls), shown(host, 1), shown(gpu, 1)) for key, calls, host, gpu in of["operations"])
        yield from table(("operation", "calls", "host, ms", "GPU, ms"), rows)


def step_row(found: Found, name: str, batch: str, precision: str, value: Any) -> tuple[str, ...]:
    slow = at(found.get(f"{name} | {batch} | {precision} | straightforward"), "step")
    floor = ratio(value["gflop_needed"]["step"], found.get(f"peak {precision}"))
    first, later = value["first"], value["second"]
    return (
        *(name, batch, precision, shown(slow)),
        f"{shown(first['step'], 3)} / {shown(later['step'], 3)}",
        *(shown(first[part], 3) for part in ("rollout", "reward", "update")),
        " / ".join(filter(None, (shown(ratio(slow, epoch["step"]), 1) for epoch in (first, later)))),
        shown(floor, 3),
        percent(ratio(floor, first["step"])),
        shown(value["peak_gib"], 1),
    )


def decode(found: Found) -> Iterator[str]:
    ways = ("ours", "library", "library, static cache", "ours, compiled", "library, static cache, compiled")
    rollouts = ("ours, rollout", "library, rollout")
    keys = dict.fromkeys(tuple(parts[:3]) for parts, _ in fully_named(found, 4))
    yield from ("", "Tokens a second:")
    yield from table(
        ("generator", "batch", "type", *ways, *rollouts),
        (
            (
                *key,
                *(shown(at(found.get(" | ".join((*key, way))), "tokens_per_second"), 0) for way in (*ways, *rollouts)),
            )
            for key in keys
        ),
    )
    yield from table(
        ("compiled", "seconds to compile", "same tokens as ours, eager"),
        (
            (" ".join(parts), shown(value["compile_seconds"], 1), shown(value["same_as_ours"], 3))
            for parts, value in fully_named(found, 4)
            if "compile_seconds" in value
        ),
    )
    yield from table(
        (
            "beams, ours in",
            "the library's in float32, s",
            "ours, s",
            "times as fast",
            "same candidates",
            "memory, GiB",
        ),
        (beam_row(precision, value) for (precision,), value in named(found, "beams")),
    )


def beam_row(precision: str, value: Any) -> tuple[str, ...]:
    library, ours = value["ways"]["plain"], value["ways"]["ours"]
    same = value["same"]["plain, ours"]
    memory = [shown(at(way, "peak_gib"), 1) for way in (library, ours)]
    return (
        precision,
        *(shown(way["clock_seconds"]) for way in (library, ours)),
        shown(ours["times_plain_clock"]),
        f"{same['same_list']} of {same['passages']}",
        " / ".join(filter(None, memory)),
    )


def rewards(found: Found) -> Iterator[str]:
    yield from peaks(found)
    yield from ("", "Pairs a second, models of published sizes (the goal of QRelScore: 2,000):")
    yield from table(
        (
            *("reward", "GFLOP a pair", "plain loop", "the same pairs", "largest difference"),
            *PRECISIONS,
            *("floors", "of the peaks", "memory, GiB"),
        ),
        (
            reward_row(found, name, value)
            for (name, models), value in fully_named(found, 2)
            if models == "published sizes"
        ),
    )
    yield from ("", "Against float32, in rank and in advantages (score minus the mean of the passage's candidates):")
    yield from table(
        ("reward", "models", "type", "rank correlation", "advantages' correlation", "same sign", "largest difference"),
        (
            (
                *(name, models, precision),
                *(shown(of[key], 4) for key in ("rank_correlation", "advantage_correlation", "same_sign")),
                small(of["largest_difference"]),
            )
            for (name, models), value in fully_named(found, 2)
            for precision in PRECISIONS[1:]
            if (of := at(value, precision))
        ),
    )


def reward_row(found: Found, name: str, value: Any) -> tuple[str, ...]:
    plain, needed = found.get(f"{name} | plain loop"), value["gflop_needed_per_pair"]
    rates = [value[precision]["pairs_per_second"] for precision in PRECISIONS]
    floors = [ratio(found.get(f"peak {precision}"), needed) for precision in PRECISIONS]
    return (
        *(name, shown(needed, 1)),
        *(shown(at(plain, key), 1) for key in ("pairs_per_second", "ours_pairs_per_second")),
        small(at(plain, "largest_difference")),
        *(shown(rate, 0) for rate in rates),
        " / ".join(shown(floor, 0) for floor in floors),
        " / ".join(percent(ratio(rate, floor)) for rate, floor in zip(rates, floors, strict=True)),
        shown(value["float32"]["peak_gib"], 1),
    )


def launch(found: Found) -> Iterator[str]:
    if value := found.get("LoRA step"):
        yield from table(
            ("step of BART-base", "s, first / later epochs", "rollout", "reward", "update", "memory, GiB"),
            (
                (
                    way,
                    f"{shown(of['first']['step'], 3)} / {shown(of['second']['step'], 3)}",
                    *(shown(of["first"][part], 3) for part in ("rollout", "reward", "update")),
                    shown(of["peak_gib"], 1),
                )
                for way, of in value.items()
            ),
        )
    plain = at(found.get("launch plain"), "losses", "ce")
    yield from table(
        ("command, one process", "s, imports included", "first stage: losses differ from plain by at most"),
        (
            (name.removeprefix("launch "), shown(of["seconds"], 1), small(loss_difference(of["losses"]["ce"], plain)))
            for name, of in found.items()
            if name.startswith("launch ") and of
        ),
    )


def loss_difference(losses: Sequence[float], plain: Sequence[float] | None) -> float | None:
    """The largest one, relative to the loss."""
    return plain and max(abs(a - b) / abs(b) for a, b in zip(losses, plain, strict=True))


def server(found: Found) -> Iterator[str]:
    yield from table(
        (
            "model",
            "clients",
            "requests a second",
            "pairs a second",
            "p50, s",
            "p95, s",
            "p99, s",
            "errors",
            "told to wait",
        ),
        (
            (
                *(f"`{model}`", clients),
                *(shown(of[key], 1) for key in ("requests_per_second", "pairs_per_second")),
                *(shown(of[f"{key}_ms"] / 1000, 2) for key in ("p50", "p95", "p99")),
                *(str(of["errors"]), str(of["counts"].get("status 503", 0))),
            )
            for (model, clients), of in fully_named(found, 2)
        ),
    )


def curve(found: Found) -> Iterator[str]:
    for preset, of in found.items():
        if of is None:
            continue
        yield from (
            "",
            f"`preset={preset}`: {of['updates']} updates in {shown(of['seconds'], 0)} s, imports included; "
            f"{shown(of['samples_per_second'], 1)} samples a second in the self-critical stage.",
        )
        names = [name for name in of["start"] if name != "step"]
        yield from table(
            ("generator", "after updates", "right questions", *names),
            (
                (
                    stage,
                    str(at_step["step"]),
                    percent(of["right"][stage]),
                    *(shown(at_step[name], 3) for name in names),
                )
                for stage, at_step in (("ce", of["start"]), ("scst", of["end"]))
            ),
        )


# --- what several have


def fully_named(found: Found, parts: int) -> Iterator[tuple[list[str], Any]]:
    """The measurements whose names have so many parts."""
    return ((names, value) for names, value in named(found) if len(names) == parts)


def peaks(found: Found) -> Iterator[str]:
    rates = {name: found.get(f"peak {name}") for name in PRECISIONS}
    if any(rates.values()):
        known = ", ".join(f"{name} {shown(rate / 1000, 1)}" for name, rate in rates.items() if rate)
        yield from ("", f"Best product, TFLOP/s: {known}.")


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


SECTIONS: dict[str, tuple[str, Callable[[Found], Iterator[str]]]] = {
    "parity": ("The same numbers", parity),
    "step": ("A self-critical step", step),
    "decode": ("Decoding", decode),
    "rewards": ("Rewards", rewards),
    "launch": ("Adapters and sharded weights", launch),
    "server": ("The server", server),
    "curve": ("Learning", curve),
}


def page(results: Mapping[str, Any]) -> str:
    """The page, of the results of the parts that there are, by their names."""
    if not results:
        return TITLE + NOTHING
    lines = [*machines(results)]
    if missing := [part for part in PARTS if part not in results]:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    for name, (title, section) in SECTIONS.items():
        if name in results:
            lines += ["", f"## {title}", *section(results[name]["measured"])]
    skipped = [
        f"- {name}, {what}: {reason}" for name, found in results.items() for what, reason in found["skipped"].items()
    ]
    if skipped:
        lines += ["", "## Skipped", "", *skipped]
    return TITLE + "\n".join(lines) + "\n"


def machines(results: Mapping[str, Any]) -> Iterator[str]:
    """What each part was measured on; a page of tiny sizes says so."""
    if any(found["settings"]["size"] == "tiny" for found in results.values()):
        yield from ("", "**Tiny sizes: these numbers say only that the experiment runs.**")
    yield from table(
        ("part", "GPU", "processor", "torch", "transformers"),
        (
            (
                name,
                found["processor"].get("gpu", "none"),
                f"{found['processor']['name']}, {found['processor']['cores']} cores",
                found["processor"]["torch"],
                found["settings"]["transformers"],
            )
            for name, found in results.items()
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    files = {part: options.results / f"{part}.json" for part in PARTS}
    results = {part: json.loads(path.read_text(encoding="utf-8")) for part, path in files.items() if path.is_file()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(page(results), encoding="utf-8")
    print(options.output)


if __name__ == "__main__":
    main()
