"""Candidates for a passage: `rl-qg generate` against a plain `model.generate` loop in the order of the data.

    python experiments/speed/generation.py --model RUN/scst --data du_test-v1.1.json.gz --output generation.json
    python experiments/speed/generation.py --model bart-base --tokenizer FOLDER --data …   # random weights

Every way of going works on the same examples, in batches of the same size, in turn: its first batch, the first batch
of the next way, …, then all second ones, so that a busy machine is busy for all. Seconds of the process (all its
threads) stand beside seconds of the clock. Memory is that of a process of its own, which goes one way alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from measurements import processor
from models import BUILDERS
from torch import Tensor
from transformers import AutoTokenizer

from rewards.arithmetic import VARIABLE
from rl_qg.data.examples import QAExample
from rl_qg.data.streaming import stream_examples
from rl_qg.generation import beam_search
from rl_qg.generation.generate import ByLength
from rl_qg.generation.generator import CandidateGenerator, beam_options
from rl_qg.runtime.files import write_json

Found = tuple[list[str], list[float]]  # of a batch: texts and log-probabilities of all beams
WAYS = {
    "plain": "model.generate over the data, in their order; text, no log-probabilities",
    "before": "rl-qg generate until now: the same, and a second pass for the log-probabilities",
    "by-length": "model.generate over batches by length",
    "shared": "and the beams of a passage share its keys and values; log-probabilities from the search",
    "dropped": "and finished passages leave the batch",
    "ours": "and linear layers are packed (CPU): rl-qg generate",
    "second-pass": "rl-qg generate, had it to compute log-probabilities in a second pass",
}


class Bench:
    """The ways of going from a batch to its candidates."""

    def __init__(self, folder: str, args: argparse.Namespace) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
        self.args = args
        ways = [args.memory_of] if args.memory_of else args.ways
        packed = {"ours", "second-pass"} & {*ways}
        self.packed = CandidateGenerator(folder, device=device, dtype=dtype) if packed else None
        self.policy: Any = self.packed
        if ways != ["ours"]:
            with patch.dict(os.environ, {VARIABLE: "never"}):
                self.policy = CandidateGenerator(folder, device=device)

    def plain(self, policy: Any, batch: dict[str, Tensor]) -> Found:
        tokens = policy.model.generate(**batch, **beam_options(self.args.beams, self.args.max_new_tokens))[:, 1:]
        return policy.tokenizer.batch_decode(tokens, skip_special_tokens=True), []

    by_length = plain

    def before(self, policy: Any, batch: dict[str, Tensor]) -> Found:
        with patch.object(policy.decoder, "shares_passages", False):
            return self.ours(policy, batch)

    def shared(self, policy: Any, batch: dict[str, Tensor]) -> Found:
        with patch.object(beam_search, "COMPACT_BELOW", 0.0):
            return self.ours(policy, batch)

    def ours(self, policy: Any, batch: dict[str, Tensor]) -> Found:
        tokens, logprobs = policy.decoder.search(batch, self.args.beams, self.args.max_new_tokens)
        return policy.tokenizer.batch_decode(tokens, skip_special_tokens=True), logprobs.tolist()

    dropped = ours

    def second_pass(self, policy: Any, batch: dict[str, Tensor]) -> Found:
        tokens, _ = policy.decoder.search(batch, self.args.beams, self.args.max_new_tokens)
        logprobs = policy.decoder.token_logprobs(batch, tokens).sum(-1)
        return policy.tokenizer.batch_decode(tokens, skip_special_tokens=True), logprobs.tolist()

    @torch.inference_mode()
    def go(self, way: str, examples: Sequence[QAExample]) -> Found:
        function: Callable[[Any, dict[str, Tensor]], Found] = getattr(self, way.replace("-", "_"))
        policy = self.packed if way in ("ours", "second-pass") else self.policy
        return function(policy, policy.batch(examples))


def batches(way: str, examples: list[QAExample], size: int) -> list[list[QAExample]]:
    ordered = examples if way in ("plain", "before") else list(ByLength(examples))
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def measure(bench: Bench, examples: list[QAExample], args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is known after each batch: seconds of every way, and whether the ways found the same."""
    work = {way: batches(way, examples, args.batch) for way in args.ways}
    seconds = {way: {"process": 0.0, "clock": 0.0} for way in work}
    found: dict[str, dict[str, Found]] = {way: {} for way in work}
    for way in work:
        bench.go(way, work[way][-1][:2])  # what is done once is done
    for number in range(len(work["plain"])):
        for way in work if number % 2 == 0 else reversed(work):
            batch = work[way][number]
            process, clock = time.process_time(), time.perf_counter()
            texts, logprobs = bench.go(way, batch)
            seconds[way]["process"] += time.process_time() - process
            seconds[way]["clock"] += time.perf_counter() - clock
            for at, example in enumerate(batch):
                own = slice(at * args.beams, (at + 1) * args.beams)
                found[way][example.id] = (texts[own], logprobs[own])
        yield summary(seconds, found)


def summary(seconds: dict[str, dict[str, float]], found: dict[str, dict[str, Found]]) -> dict[str, Any]:
    """Rates, and the comparison of each way with the one before it, and of ours with those that it replaces."""
    ways = {
        way: {
            "what": WAYS[way],
            "passages": len(found[way]),
            **{f"{kind}_seconds": round(value, 2) for kind, value in taken.items()},
            "passages_per_process_second": round(len(found[way]) / taken["process"], 3),
            "times_plain": round(seconds["plain"]["process"] / taken["process"], 2),
            "times_plain_clock": round(seconds["plain"]["clock"] / taken["clock"], 2),
        }
        for way, taken in seconds.items()
    }
    compared = [*pairwise(found), *(pair for pair in (("plain", "ours"), ("before", "ours")) if {*pair} <= {*found})]
    return {"ways": ways, "same": {f"{x}, {y}": same(found[x], found[y]) for x, y in compared}}


def same(one: dict[str, Found], other: dict[str, Found]) -> dict[str, Any]:
    """How many passages have the same candidates in the same order, as a set, and the same first one; of the equal
    lists, the largest difference between log-probabilities.
    """
    pairs = [(one[key], other[key]) for key in one if key in other]  # the orders differ until all are done
    gaps = [
        abs(x - y)
        for first, second in pairs
        if first[0] == second[0]
        for x, y in zip(first[1], second[1], strict=False)
    ]
    return {
        "passages": len(pairs),
        "same_list": sum(first[0] == second[0] for first, second in pairs),
        "same_set": sum(sorted(first[0]) == sorted(second[0]) for first, second in pairs),
        "same_first": sum(first[0][0] == second[0][0] for first, second in pairs),
        "largest_difference": max(gaps, default=None),
    }


def model_folder(args: argparse.Namespace, folder: Path) -> str:
    if args.model not in BUILDERS:
        return str(args.model)
    torch.manual_seed(0)
    model, tokenizer = BUILDERS[args.model](), AutoTokenizer.from_pretrained(args.tokenizer, trust_remote_code=False)
    model.generation_config.decoder_start_token_id = model.generation_config.bos_token_id = tokenizer.cls_token_id
    model.generation_config.eos_token_id = tokenizer.sep_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def memory(way: str, args: argparse.Namespace, folder: str) -> float:
    """MiB at the peak of a process that goes one way over the longest and the first batches."""
    command = [sys.executable, __file__, *sys.argv[1:], "--model", folder, "--memory-of", way]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak_memory(bench: Bench, examples: list[QAExample], args: argparse.Namespace) -> float:
    """The GPU's allocations, else the process: not `getrusage`, whose peak a child takes over from its parent."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak of loading
    for batch in batches(args.memory_of, examples, args.batch)[:2]:
        bench.go(args.memory_of, batch)
    if cuda:
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a trained encoder-decoder, or bart-base for random weights")
    parser.add_argument("--tokenizer", help="for random weights")
    parser.add_argument("--data", required=True, help="QA data; the first passages are taken")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--beams", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=32)
    parser.add_argument("--precision", default="no", choices=("no", "bf16"), help='of the way "ours" alone')
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", choices=list(WAYS), help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, required=True, help="JSON, written anew after each batch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    data = stream_examples(args.data, role="train", spans=True)
    examples = list(islice(data, args.examples))
    with tempfile.TemporaryDirectory() as scratch:
        folder = model_folder(args, Path(scratch))
        bench = Bench(folder, args)
        if args.memory_of:
            print(peak_memory(bench, examples, args))
            return
        settings = {name: value for name, value in vars(args).items() if name not in ("output", "memory_of", "ways")}
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        report = {**settings, "device": device, "processor": processor()}
        for known in measure(bench, examples, args):
            report |= known
            write_json(args.output, report)
        ways = [way for way in ("plain", "before", "ours") if way in args.ways]
        write_json(args.output, {**report, "peak_MiB": {way: round(memory(way, args, folder)) for way in ways}})


if __name__ == "__main__":
    main()
