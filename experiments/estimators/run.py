"""Bias and variance of the baselines, against the exact gradient on a policy whose every question can be listed.

    python experiments/estimators/run.py        # writes results.json and estimators.png beside itself, half a minute

The policy is a table of logits over questions of up to three tokens from five (85 questions); a sharper one stands for
later training. Rewards lie about 0.5, as a metric's do. Estimators are those of `rl_qg.training.objectives`.
"""

import json
from itertools import product
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from rl_qg.generation.logprobs import token_logprobs
from rl_qg.training.objectives import advantages, shaped

HERE = Path(__file__).parent
END, WORDS, LENGTH, DRAWS = 0, 5, 3, 100_000
POLICIES = {"early (entropy of a question: {:.1f} nats)": 0.7, "late ({:.1f} nats)": 4.0}
COUNTS = {"greedy": (1, 3, 7), "none": (1, 2, 4, 8), "leave_one_out": (2, 4, 8), "mean": (2, 4, 8)}
COLOURS = {"greedy": "#1b5e9e", "none": "#8a8a8a", "leave_one_out": "#c1440e", "mean": "#3d8c40"}
NAMES = {"greedy": "greedy (SCST)", "none": "none", "leave_one_out": "leave one out", "mean": "mean"}
SHAPES = {"scale only": {}, "normalised": {"normalise": True}, "clipped at 0.05": {"clip": 0.05}}


def questions() -> tuple[Tensor, Tensor]:
    """Every question (n, 3) and its mask."""
    found = [[*body, END] for length in range(LENGTH) for body in product(range(1, WORDS), repeat=length)] + [
        list(body) for body in product(range(1, WORDS), repeat=LENGTH)
    ]
    tokens = torch.tensor([[*row, *[END] * (LENGTH - len(row))] for row in found])
    mask = torch.tensor([[place < len(row) for place in range(LENGTH)] for row in found])
    return tokens, mask


class Toy:
    """Probabilities (n,), rewards (n,) and gradients of log p (n, parameters) of every question."""

    def __init__(self, sharpness: float) -> None:
        generator = torch.Generator().manual_seed(3)
        tokens, mask = questions()
        table = sharpness * torch.randn(WORDS + 1, WORDS, dtype=torch.float64, generator=generator)
        before = torch.cat((torch.full((len(tokens), 1), WORDS), tokens[:, :-1]), 1)

        def logprob(table: Tensor) -> Tensor:
            return (token_logprobs(table[before], tokens) * mask).sum(-1)

        self.gradients = torch.autograd.functional.jacobian(logprob, table).flatten(1)
        self.probabilities = logprob(table).exp()
        assert abs(float(self.probabilities.sum()) - 1) < 1e-9
        self.rewards = 0.5 + 0.1 * torch.randn(len(tokens), dtype=torch.float64, generator=generator)
        self.exact = (self.probabilities * self.rewards) @ self.gradients
        self.greedy = self.rewards[self._greedy(table, tokens, before)]
        self.entropy = float(-(self.probabilities * self.probabilities.log()).sum())

    def _greedy(self, table: Tensor, tokens: Tensor, before: Tensor) -> int:
        last, chosen = WORDS, []
        while len(chosen) < LENGTH and (not chosen or chosen[-1] != END):
            last = int(table[last].argmax())
            chosen.append(last)
        wanted = torch.tensor([*chosen, *[END] * (LENGTH - len(chosen))])
        return int((tokens == wanted).all(-1).nonzero()[0])

    def estimate(self, baseline: str, k: int, contexts: int = 1, **shape: float | bool) -> dict[str, float]:
        """Relative bias ‖mean − exact‖ / ‖exact‖, its standard error, and variance / ‖exact‖², over many draws of k
        samples for each of so many contexts (all the same one: normalisation looks at a whole batch).
        """
        generator = torch.Generator().manual_seed(7)
        drawn = torch.multinomial(self.probabilities, DRAWS * k, replacement=True, generator=generator).view(-1, k)
        raw = advantages(self.rewards[drawn], baseline, self.greedy.expand(len(drawn)))
        if shape.get("normalise"):
            raw = torch.cat([shaped(batch, normalise=True) for batch in raw.split(contexts)])
        else:
            raw = shaped(raw, **shape)  # type: ignore[arg-type]
        mean, square = torch.zeros_like(self.exact), 0.0
        for rows, advantage in zip(drawn.split(5000), raw.split(5000), strict=True):
            single = torch.einsum("nk,nkp->np", advantage, self.gradients[rows]) / k
            mean += single.sum(0)
            square += float(single.square().sum())
        mean, square = mean / len(drawn), square / len(drawn)
        size = float(self.exact.square().sum())
        variance = square - float(mean.square().sum())
        # Normalisation and clipping change the length along the exact gradient on purpose, not the direction.
        return {
            "bias": float((mean - self.exact).norm()) / size**0.5,
            "bias_standard_error": (variance / len(drawn) / size) ** 0.5,
            "length_along_exact": float(mean @ self.exact) / size,
            "cosine": float(mean @ self.exact) / (float(mean.norm()) * size**0.5),
            "variance": variance / size,
        }


def measure() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, sharpness in POLICIES.items():
        toy = Toy(sharpness)
        rows = [
            {"baseline": baseline, "samples": k, "decoded": k + (baseline == "greedy"), **toy.estimate(baseline, k)}
            for baseline, counts in COUNTS.items()
            for k in counts
        ]
        shapes = {label: toy.estimate("greedy", 1, contexts=16, **shape) for label, shape in SHAPES.items()}  # type: ignore[arg-type]
        found[name.format(toy.entropy)] = {"baselines": rows, "greedy, one sample, shaped": shapes}
    return found


def plot(found: dict[str, dict[str, object]], path: Path) -> None:
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, layout="constrained")
    for column, (title, result) in enumerate(found.items()):
        for baseline in COUNTS:
            rows = [row for row in result["baselines"] if row["baseline"] == baseline]  # type: ignore[attr-defined]
            places = [row["decoded"] for row in rows]
            for axis, key in ((axes[0, column], "variance"), (axes[1, column], "bias")):
                values = [row[key] for row in rows]
                axis.plot(places, values, "o-", color=COLOURS[baseline], markersize=4, linewidth=1.5)
                if column == 1 and key == "variance":
                    axis.annotate(
                        NAMES[baseline],
                        (8, values[-1]),
                        (7, {"greedy": 6, "leave_one_out": -3, "mean": -7}.get(baseline, 0)),
                        textcoords="offset points",
                        va="center",
                        color=COLOURS[baseline],
                        fontsize=9,
                    )
        axes[0, column].set_title(title, fontsize=10, loc="left")
        axes[0, column].set_yscale("log")
        axes[1, column].set_xlabel("questions decoded per context")
        axes[1, column].set_ylim(0, 0.6)
        axes[1, column].annotate(
            "the rest: noise of 100,000 draws", (9, 0.12), ha="right", fontsize=8, color="#666666"
        )
    axes[0, 0].set_ylabel("variance / |exact gradient|²")
    axes[1, 0].set_ylabel("|bias| / |exact gradient|")
    axes[1, 0].set_xticks([1, 2, 4, 8])
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    figure.savefig(path, dpi=110)


def main() -> None:
    found = measure()
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    plot(found, HERE / "estimators.png")
    for title, result in found.items():
        print(title)
        for row in result["baselines"]:  # type: ignore[attr-defined]
            print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
        print(json.dumps(result["greedy, one sample, shaped"], indent=1))


if __name__ == "__main__":
    main()
