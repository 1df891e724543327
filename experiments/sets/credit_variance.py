"""Credit of questions for the reward of their set: bias and variance of the gradient, and what training with it does.

    python experiments/sets/credit_variance.py toy                      # by enumeration, a minute
    python experiments/sets/credit_variance.py train FOLDER             # five runs on the embedded corpus
    python experiments/sets/credit_variance.py model FOLDER             # at the weights of FOLDER/ce, after `train`

From the root of the repository (the toy is that of the tests). Each prints a table in Markdown; numbers and what they
say are in credit.md.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from rewards import CoverageSetReward, MultiSetReward
from rl_qg.data.corpus import synthetic_examples
from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.sets import set_rows
from rl_qg.generation.tasks import QUESTION
from rl_qg.runtime.files import read_json_lines
from rl_qg.scoring.task_scorers import SetScorer
from rl_qg.training.config import SelfCriticalConfig
from rl_qg.training.objectives import policy_gradient
from rl_qg.training.set_credit import ScoredRollout, advantages_of, of_questions
from rl_qg.training.trainer import SelfCriticalTrainer
from tests.rl_qg.training.set_policy import SETS, autoregressive, exact_loss, expected_loss, logprobs, variance

sys.path.append(str(Path(__file__).resolve().parents[1]))
from world_settings import WORLD_SETTINGS

CREDITS = ("whole", "marginal", "to_go")
SAMPLES, CONTEXTS, ROLLOUTS = 4, 8, 40
COMMON = (
    *(
        *WORLD_SETTINGS,
        "data=world",
        "ask.granularity=paragraph",
        "model.max_target_length=96",
        "scst.max_new_tokens=96",
    ),
    *("data.labelled_fraction=0.08", "training.eval_samples=24", "training.batch_size=8", "training.eval_steps=24"),
    *("training.save_steps=1000", "held_out=question_set", "held_out.per_sentence=0.5"),
    *("reward=multi_set", "evaluation.check_reward=0"),
)


def toy() -> None:
    """Means over policies of the toy, with two samples and leave-one-out."""
    print("| policies | credit | cosine with the gradient of E[R] | relative bias | variance / whole | noise |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size in (0.5, 1.0, 2.0):
        rows: dict[str, list[tuple[float, ...]]] = {credit: [] for credit in CREDITS}
        for seed in range(10):
            logits = autoregressive(seed, size)
            (true,) = torch.autograd.grad(exact_loss(logits), logits)
            true, of_whole = true.flatten(), 0.0
            for credit in CREDITS:
                mean, spread = variance(logits, credit, "leave_one_out", 2)
                of_whole = spread if credit == "whole" else of_whole
                cosine = float(torch.cosine_similarity(mean, true, dim=0))
                bias = float((mean - true).norm() / true.norm())
                rows[credit].append((cosine, bias, spread / of_whole, spread / float(mean.square().sum())))
        for credit, values in rows.items():
            columns = torch.tensor(values).mean(0).tolist()
            print(f"| logits of size {size} | {credit} | " + " | ".join(f"{value:.3f}" for value in columns) + " |")


def toy_numbers() -> None:
    """Where the bias of marginal credit is: cosines of gradients, means over 20 policies of the toy."""
    number = torch.tensor([len(group) for group in SETS], dtype=torch.float64)
    rows = []
    for seed in range(20):
        logits = autoregressive(seed)
        expected_number = (logprobs(logits).sum(-1).exp() * number).sum()
        losses = (-expected_number, exact_loss(logits), expected_loss(logits, "marginal", "none", 1))
        more, true, marginal = (torch.autograd.grad(loss, logits)[0] for loss in losses)
        parts = [(true, more), (marginal, more)]
        for columns in (slice(0, 2), slice(2, 4)):  # end and separator, words; what changes the choice among them
            parts.append(tuple(g[:, columns] - g[:, columns].mean(-1, keepdim=True) for g in (true, marginal)))
        rows.append([float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)) for a, b in parts])
    names = (
        "E[R] and E[number]",
        "marginal and E[number]",
        "marginal and E[R]: end or separator",
        "the same: which word",
    )
    print("\n| gradients of | cosine |\n| --- | --- |")
    for name, value in zip(names, torch.tensor(rows).mean(0).tolist(), strict=True):
        print(f"| {name} | {value:.2f} |")


def train(folder: Path) -> None:
    """Cross-entropy, then equally many updates of it or of SCST with each credit; greedy sets of held-out passages."""
    start = folder / "ce"
    command("stages=ce", "ce.epochs=12", f"output_dir={start}")
    runs = {"ce": ("stages=ce", "ce.epochs=4", "ce.learning_rate=3e-4")}
    for credit in CREDITS:
        runs[credit] = ("stages=scst", "scst.epochs=4", f"scst.num_samples={SAMPLES}", f"scst.credit={credit}")
    print("| run | updates | held-out multi_set | held-out question_set | written | self-BLEU (1 − distinct) |")
    print("| --- | --- | --- | --- | --- | --- |")
    print("| start | 0 | " + " | ".join(f"{value:.4f}" for value in measured(start / "ce")) + " |", flush=True)
    for name, options in runs.items():
        output = folder / f"more-{name}"
        command(*options, f"model.path={start / 'ce'}", f"output_dir={output}")
        print(row_of(name, output), flush=True)


def command(*options: str) -> None:
    """`rl-qg train` in a process of its own; complete runs are kept."""
    with open("/dev/null", "w") as nothing:
        subprocess.run([sys.executable, "-m", "rl_qg", "train", *COMMON, *options], check=True, stdout=nothing)


def row_of(name: str, folder: Path) -> str:
    """A run: its updates, and its greedy sets of new passages."""
    lines = [line for _, line in read_json_lines(folder / "metrics.jsonl") if "eval_loss" in line]
    model = folder / ("ce" if name == "ce" else "scst")
    last = measured(model)
    return f"| {name} | {lines[-1]['step']} | " + " | ".join(f"{value:.4f}" for value in last) + " |"


def measured(model: Path) -> tuple[float, ...]:
    """Means over held-out passages of greedy sets: Multi-ROUGE-L, question_set, number, 1 − distinct."""
    subject = trainer(model, contexts=40, seed=7)
    rollout = subject.roll_out(batch(subject, 40), samples=0, greedy=True)
    assert rollout.greedy is not None
    examples = subject.train_dataset
    texts = subject.texts(rollout.greedy, examples)
    agreement = SetScorer(MultiSetReward())(examples, texts)
    free = SetScorer(CoverageSetReward(per_sentence=0.5))(examples, texts)
    columns = (agreement.scores, free.scores, agreement.parts["written"], [1 - v for v in free.parts["distinct"]])
    return tuple(sum(column) / len(column) for column in columns)


def trainer(model: Path, contexts: int, seed: int) -> SelfCriticalTrainer:
    """A trainer of a model on new passages of the embedded corpus."""
    rows = set_rows("paragraph", "one2many", list(synthetic_examples(contexts, seed=seed)))
    weights, tokenizer = load_seq2seq(str(model))
    arguments = SelfCriticalConfig(
        output_dir="/tmp/credit", task="sets", granularity="paragraph", mode="one2many", use_cpu=True,
        report_to="none", max_new_tokens=96, max_target_length=96, num_samples=SAMPLES,
        baseline="leave_one_out", seed=5,
    )  # fmt: skip
    return SelfCriticalTrainer(
        weights, arguments, reward=MultiSetReward(), train_dataset=rows, processing_class=tokenizer
    )


def batch(subject: SelfCriticalTrainer, contexts: int) -> dict[str, object]:
    """The first passages as the trainer collates them."""
    collated: dict[str, object] = subject.encoder(list(subject.train_dataset)[:contexts])
    return collated


def model(folder: Path) -> None:
    """The same rollouts of a small model, by each credit: noise of the gradient of a batch, and its direction."""
    subject = trainer(folder / "ce" / "ce", CONTEXTS, seed=7)
    sums: dict[str, Tensor] = {}
    squares = dict.fromkeys(CREDITS, 0.0)
    crossed = dict.fromkeys(CREDITS, 0.0)
    for number in range(ROLLOUTS):
        print(f"rollout {number + 1} of {ROLLOUTS}", end="\r", file=sys.stderr)
        gradients = dict(gradients_of(subject, number))
        for credit, own in gradients.items():
            sums[credit] = sums.get(credit, torch.zeros_like(own)) + own
            squares[credit] += float(own @ own)
            crossed[credit] += float(own @ gradients["whole"])
    pairs = ROLLOUTS * (ROLLOUTS - 1)
    signal = {credit: (float(sums[credit] @ sums[credit]) - squares[credit]) / pairs for credit in CREDITS}
    print(
        "| credit | variance / whole | squared mean / whole | noise (variance / squared mean) | cosine of the means |"
    )
    print("| --- | --- | --- | --- | --- |")
    spread = {credit: squares[credit] / ROLLOUTS - signal[credit] for credit in CREDITS}
    for credit in CREDITS:
        product = (float(sums[credit] @ sums["whole"]) - crossed[credit]) / pairs
        cosine = product / (signal[credit] * signal["whole"]) ** 0.5
        relative = (
            spread[credit] / spread["whole"],
            signal[credit] / signal["whole"],
            spread[credit] / signal[credit],
        )
        print(f"| {credit} | " + " | ".join(f"{value:.3f}" for value in (*relative, cosine)) + " |")


def gradients_of(subject: SelfCriticalTrainer, number: int) -> Iterator[tuple[str, Tensor]]:
    """The gradient of L_scst of one rollout by each credit, without scaling."""
    inputs, weights = batch(subject, CONTEXTS), [p for p in subject.model.parameters() if p.requires_grad]
    subject.state.global_step = number
    rollout = subject.roll_out(inputs, samples=SAMPLES, greedy=False)
    samples = rollout.samples
    assert samples is not None
    subject.model.eval()
    labels = samples.tokens.masked_fill(~samples.mask, -100)
    logprobs = subject.logits(subject.model, inputs, labels).log_softmax(-1)
    logprobs = logprobs.gather(-1, samples.tokens.unsqueeze(-1)).squeeze(-1)
    texts, examples = subject.texts(samples, inputs["examples"]), inputs["examples"]
    rows = [example for example in examples for _ in range(SAMPLES)]
    for credit in CREDITS:
        scored = SetScorer(subject.scorer.reward, credit=credit)(rows, texts)
        outcome = ScoredRollout.of(scored, texts, [], copies=SAMPLES, device=subject.args.device)
        separator = subject.processing_class.convert_tokens_to_ids(QUESTION)
        given = advantages_of(outcome, "leave_one_out", credit)
        advantage = given.flatten() if given.dim() == 2 else of_questions(given, samples, separator)
        loss = policy_gradient(logprobs, samples.mask, advantage).mean()
        grads = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
        yield credit, torch.cat([grad.flatten() for grad in grads if grad is not None])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["toy"]:
            toy()
            toy_numbers()
        case ["train", folder]:
            train(Path(folder))
        case ["model", folder]:
            model(Path(folder))
        case _:
            sys.exit(__doc__)
