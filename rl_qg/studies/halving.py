"""Synchronous successive halving: all configurations are trained a little, the best are kept and trained on.

A rung is a number of epochs and the number of configurations that are kept there (Jamieson and Talwalkar,
"Non-stochastic best arm identification and hyperparameter optimization", 2016; the search of QG-Bench, Ushio et al.
2022, has rungs at 2 and 8 epochs). Nothing here depends on the order in which trials end, so the ranking is the same
for any number of workers and after any interruption. What a trial is, and how it is run, is up to the caller.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """One point of the space: its number, from 1 in the order of the space, and its overrides by the varied key."""

    number: int
    values: Mapping[str, str] = field(hash=False)
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Trial:
    """A configuration trained with a seed for so many epochs."""

    configuration: Configuration
    seed: int
    epochs: int


@dataclass(frozen=True)
class TrialResult:
    """What was measured, or one line about what went wrong; `weights` is a hash of the model, where there is one."""

    value: float | None
    weights: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Plan:
    """How far configurations are trained, and which are trained on."""

    rungs: tuple[tuple[int, int], ...]  # epochs, rising, and how many configurations are kept
    every: int | None = None  # after the first rung, epochs between measurements; None: at rungs alone
    # Up to where what the last rung keeps goes on, each epoch by epoch while it improves; None: not at all.
    go_on_to: int | None = None
    seeds: tuple[int, ...] = (1,)  # every configuration is trained with each, and ranked by the mean
    higher: bool = True

    def stops(self) -> list[list[int]]:
        """For each rung the epochs after which runs are measured on the way to it, it included."""
        found, before = list[list[int]](), 0
        for epochs, _ in self.rungs:
            step = (self.every or epochs) if before else epochs
            found.append([*range(before + step, epochs, step), epochs])
            before = epochs
        return found


Record = dict[str, Any]  # of what happened, as the file of a search has it
Run = Callable[[Sequence[Trial]], Mapping[Trial, TrialResult]]


@dataclass
class Halving:
    """A search in progress. `run` gets the trials of one training with epochs rising.

    Attributes:
        values: of each configuration by epochs, one value for each seed.
        weights: hashes of the models at the first rung, by configuration and seed.
        failed: by configuration, the first trial that failed: `seed`, `epochs`, and its last line, `fault`.
        rungs: those that ended: `epochs`, `ranking` (all that were measured, the best first), and who was `kept`.
        ties: `configurations` of exactly the same `value` after `epochs` of a rung, or in the end, which their order
            decides; `decided`: whether that decided who was kept, or won.
        winner: the best that the last rung kept, the first of equal ones; None before the end, or if all failed.
    """

    plan: Plan
    run: Run
    after_rung: Callable[["Halving"], None] = lambda halving: None
    configurations: dict[int, Configuration] = field(default_factory=dict)
    values: dict[int, dict[int, list[float]]] = field(default_factory=dict)
    weights: dict[tuple[int, int], str] = field(default_factory=dict)
    failed: dict[int, Record] = field(default_factory=dict)
    rungs: list[Record] = field(default_factory=list)
    ties: list[Record] = field(default_factory=list)
    winner: int | None = None

    def start(self, configurations: Iterable[Configuration]) -> None:
        new = {one.number: one for one in configurations}
        self.configurations |= new
        self._train([*new], self.plan.stops()[0])

    def finish(self) -> None:
        """From the end of the first rung on. What the last one keeps goes on while its last epoch is its only best."""
        numbers = [*self.configurations]
        for place, ((epochs, keep), stops) in enumerate(zip(self.plan.rungs, self.plan.stops(), strict=True)):
            if place:
                self._train(numbers, stops)
            numbers = self._end_rung(epochs, numbers, keep)
            self.after_rung(self)
        going = numbers
        for last in range(self.plan.rungs[-1][0], self.plan.go_on_to or 0):
            going = [number for number in going if number not in self.failed and self.score(number)[1] == last]
            if not going:
                break
            self._train(going, [last + 1])
        if numbers:
            self.winner = self._ranked(numbers)[0]
            value = self.score(self.winner)[0]
            equal = [number for number in self._ranked(numbers) if self.score(number)[0] == value]
            if len(equal) > 1:
                last = max(epochs for number in equal for epochs in self.values[number])
                self.ties.append({"epochs": last, "value": value, "configurations": equal, "decided": True})

    def without_effect(self) -> list[Record]:
        """Configurations whose models are equal at the first rung with some seed; the `keys` that did nothing."""
        found, seen = [], dict[tuple[int, str], int]()
        for (number, seed), weights in sorted(self.weights.items()):
            first = seen.setdefault((seed, weights), number)
            if first != number:
                one, other = self.configurations[first].values, self.configurations[number].values
                keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
                found.append({"first": first, "second": number, "keys": keys, "seed": seed})
        return found

    @property
    def _sign(self) -> float:
        return 1.0 if self.plan.higher else -1.0

    def score(self, number: int) -> tuple[float, int]:
        """The best mean over seeds of a configuration, and the epochs after which it was reached first."""
        means = {epochs: fmean(values) for epochs, values in sorted(self.values[number].items())}
        best = max(means, key=lambda epochs: self._sign * means[epochs])
        return means[best], best

    def leaders(self) -> list[int]:
        """The winner, then all that have not failed: what was kept last by its score, then by rung and rank."""
        ranked = [number for rung in reversed(self.rungs) for number in rung["ranking"] if number not in self.failed]
        if self.winner is not None:
            kept = [number for number in self.rungs[-1]["kept"] if number not in self.failed]
            ranked = [self.winner, *self._ranked(kept), *ranked]
        return list(dict.fromkeys(ranked))

    def _ranked(self, numbers: Iterable[int]) -> list[int]:
        return sorted(numbers, key=lambda number: (-self._sign * self.score(number)[0], number))

    def _train(self, numbers: Sequence[int], stops: Sequence[int]) -> None:
        configurations = [self.configurations[number] for number in numbers]
        trials = [Trial(one, seed, epochs) for one in configurations for seed in self.plan.seeds for epochs in stops]
        results = self.run(trials)
        for trial in trials:
            number, result = trial.configuration.number, results[trial]
            if number in self.failed:
                continue
            if result.fault is not None or result.value is None or not math.isfinite(result.value):
                fault = f"measured {result.value}" if result.fault is None else result.fault
                self.failed[number] = {"seed": trial.seed, "epochs": trial.epochs, "fault": fault}
                continue
            self.values.setdefault(number, {}).setdefault(trial.epochs, []).append(result.value)
            if trial.epochs == self.plan.rungs[0][0] and result.weights is not None:
                self.weights[number, trial.seed] = result.weights
        for number in numbers:  # without the epochs of one that failed with some of its seeds
            by_epochs = self.values.get(number, {}).items()
            self.values[number] = {key: values for key, values in by_epochs if len(values) == len(self.plan.seeds)}

    def _end_rung(self, epochs: int, numbers: Sequence[int], keep: int) -> list[int]:
        scores = {number: self.score(number)[0] for number in numbers if number not in self.failed}
        ranking = self._ranked(scores)
        kept = ranking[:keep]
        for value in dict.fromkeys(scores[number] for number in ranking):
            equal = [number for number in ranking if scores[number] == value]
            if len(equal) > 1:
                decided = len({number in kept for number in equal}) > 1
                self.ties.append({"epochs": epochs, "value": value, "configurations": equal, "decided": decided})
        self.rungs.append({"epochs": epochs, "ranking": ranking, "kept": kept})
        return kept
