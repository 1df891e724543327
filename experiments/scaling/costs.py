"""The tables of docs/explanation/cost.md and docs/how-to/many-gpus.md, and the plan of docs/explanation/scaling.md.

    python experiments/scaling/costs.py --measure    # a product on this processor, into results.json
    python experiments/scaling/costs.py --study      # hours of experiments/augmentation/paper.yaml, into results.json
    python experiments/scaling/costs.py              # the tables, as Markdown

The model is `cost_model.py`, whose machine is given the peaks of each GPU in `rl_qg.runtime.operations`.
"""

import json
import sys
import time
from pathlib import Path

import torch
from cost_model import (
    ARCHITECTURES,
    REWARDS,
    Machine,
    Work,
    beams_step,
    cross_entropy_step,
    encoding,
    memory,
    scoring,
    self_critical_step,
)
from measure import RESULTS, bart, write
from tables import SQUAD, table
from transformers import AutoModelForQuestionAnswering, AutoModelForSeq2SeqLM, DistilBertConfig

from rl_qg.runtime.operations import BANDWIDTH, GPUS, REACHED, OperationCounter
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import Study

REACHED_HERE = 0.62
"""Of twice one core's product, by a step of batch 16 with AVX2 alone (experiments/speed): 0.50 in the rollout, 0.64
and 0.67 in the reward's decoder and encoder, 0.69 in the backward pass.
"""
CORES = 2
READ_HERE = 10e9
"""Bytes of weights a second that a decoder reads. Assumed; decoding in batches computes longer than it reads."""
BEAMS, CANDIDATES = 8, 8
READER = 242  # tokens of a question with its window
FILTERS = "filters, of a core"
DEVELOPMENT = 10_570  # SQuAD's questions that a reader of the study is judged on
HOURS = ("CE", "SCST", "generate", "score", "qa")


def measure() -> dict[str, float]:
    """Floating-point operations a second, of one core's own time, of a product of bart-base's feed-forward layers."""
    torch.set_num_threads(1)
    left, right, best = torch.randn(3072, 768), torch.randn(768, 3072), 0.0
    for _ in range(10):
        start = time.process_time()
        for _ in range(5):
            left @ right
        best = max(best, 5 * 2 * 3072 * 768 * 3072 / (time.process_time() - start))
    return {"products": round(best)}


def machines() -> dict[str, Machine]:
    rate = CORES * json.loads(RESULTS.read_text())["processor"]["products"]
    here = Machine(rate, rate, REACHED_HERE, READ_HERE, layer_step=0.0)
    return {"two cores": here} | {
        name: Machine(gpu.bf16, gpu.float32, REACHED, BANDWIDTH * gpu.bandwidth) for name, gpu in GPUS.items()
    }


def hours(machine: Machine, generator: str, gpus: int = 1, questions: float = 1e5) -> dict[str, float]:
    """Of each stage: training on SQuAD, 4 passes of cross-entropy and 2 with QRelScore; candidates of 8 beams for
    `questions` / 8 answers, their QRelScore, and one reader that reads them twice. In bf16.
    """
    model, work = ARCHITECTURES[generator], Work()
    step = self_critical_step(machine, model, "DDP", gpus, work, reward="QRelScore", reward_dtype="bfloat16")
    updates = SQUAD / work.rows / gpus
    seconds = (
        4 * updates * cross_entropy_step(machine, model, "DDP", gpus, work),
        2 * updates * sum(step.values()),
        questions / CANDIDATES / work.rows / gpus * beams_step(machine, model, work, beams=BEAMS),
        questions / CANDIDATES / gpus * machine.compute(scoring("QRelScore", Work(rows=1), questions=CANDIDATES)),
        2 * 1.1 * questions / gpus * machine.compute(3 * encoding(ARCHITECTURES["distilbert"], READER, READER)),
    )
    return {name: value / 3600 for name, value in zip(HOURS, seconds, strict=True)}


def counted(dtype: torch.dtype) -> dict[str, float]:
    """Seconds of an H100 by `OperationCounter`, from one step of each on this machine, with random weights: `ce`, an
    update of bart-base; `qa`, one of DistilBERT; `read`, 16 windows that it reads, which filters and evaluations do
    in float32.
    """
    work, found = Work(), dict[str, float]()
    generator = AutoModelForSeq2SeqLM.from_config(bart(768, 6))
    reader = AutoModelForQuestionAnswering.from_config(DistilBertConfig())
    ids, place = torch.full((work.rows, READER), 5), torch.full((work.rows,), 5)
    asked = {"input_ids": ids[:, : work.context].clone(), "labels": ids[:, : work.question].clone()}
    read = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "start_positions": place, "end_positions": place}
    for name, model, inputs in (("ce", generator, asked), ("qa", reader, read), ("read", reader, read)):
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # as the trainers take
        with OperationCounter() as counter, torch.set_grad_enabled(name != "read"):
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32 and name != "read"):
                loss = model(**inputs).loss
            if name != "read":
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)  # as on a GPU
                optimizer.step()
        found[name] = counter.counts["H100"]
    return found


def study(dtype: torch.dtype) -> dict[str, dict[str, float]]:
    """Of each kind of job of the study at full size: steps of all its jobs, milliseconds of one, hours of an H100 (of
    filters: of a core). Every reader makes the updates of the largest amount, in two passes.
    """
    paper = read_job_file(Study, Path(__file__).resolve().parents[1] / "augmentation" / "paper.yaml")
    shares = [one.fraction for one in paper.resources.values() for _ in paper.seeds]
    gpu, model, work, own = GPUS["H100"], ARCHITECTURES["bart-base"], Work(), counted(dtype)
    peak = gpu.float32 if dtype == torch.float32 else gpu.bf16
    machine = Machine(peak, peak, REACHED, BANDWIDTH * gpu.bandwidth)
    batches = SQUAD / work.rows  # of one pass
    generators, amounts = len(shares) * len(paper.generators), len([one for one in paper.amounts if one])
    filtered = generators * len(paper.filters) * amounts
    steps = {"cross-entropy": (4 * sum(shares) * batches, own["ce"])}
    for reward in REWARDS:
        parts = self_critical_step(machine, model, "DDP", 1, work, reward=reward, reward_dtype=str(dtype)[6:])
        steps[f"SCST with {reward}"] = 2 * sum(shares) * batches, own["ce"] + parts["rollout"] + parts["reward"]
    steps |= {
        "generate, 8 beams": (generators * batches, beams_step(machine, model, work, beams=BEAMS)),
        "round trip": (generators * CANDIDATES * batches, own["read"]),
        "readers": ((1 + filtered / len(shares)) * sum(shares) * 2 * (1 + max(paper.amounts)) * batches, own["qa"]),
        "their evaluation": ((len(shares) + filtered) * DEVELOPMENT / work.rows, own["read"]),
        FILTERS: (filtered * CANDIDATES * SQUAD, filter_seconds()),
    }
    found: dict[str, dict[str, float]] = {
        name: {"steps": round(many), "ms": 1e3 * each, "hours": many * each / 3600}
        for name, (many, each) in steps.items()
    }
    return found | {"all on the GPU": {"hours": sum(one["hours"] for name, one in found.items() if name != FILTERS)}}


def filter_seconds() -> float:
    """Of one core, for one candidate."""
    small, large = (json.loads(RESULTS.read_text())["bounded augment"][rows] for rows in ("1000000", "10000000"))
    return (large["processor_seconds"] - small["processor_seconds"]) / (large["rows"] - small["rows"])


def full_size() -> str:
    """The study at full size (experiments/augmentation/paper.yaml) on one H100, from results.json."""
    half, full = (json.loads(RESULTS.read_text())["study"][name] for name in ("bfloat16", "float32"))
    rows = [
        [
            name,
            f"{one['steps']:,}" if "steps" in one else "",
            f"{one['ms']:.3g}" if "ms" in one else "",
            f"{one['hours']:.1f}",
            f"{full[name]['hours']:.1f}",
        ]
        for name, one in half.items()
    ]
    return table(["", "steps", "ms, bf16", "hours, bf16", "hours, float32"], rows)


def places() -> str:
    """Time of each stage on one device: bart-base, SQuAD, 100,000 questions."""
    found = {name: hours(machine, "bart-base") for name, machine in machines().items()}
    return table(["", *HOURS], [[name, *map(_time, one.values())] for name, one in found.items()])


def numbers() -> str:
    """Time on H100s for a million questions, and GB a GPU at the longest texts."""
    rows = []
    for generator in ("bart-base", "bart-large"):
        for gpus in (1, 8, 64):
            found = hours(machines()["H100"], generator, gpus, 1e6)
            size = memory(ARCHITECTURES[generator], "DDP", gpus, Work(context=512, question=64)) / 1e9
            rows.append([generator, gpus, *map(_time, found.values()), f"{size:.0f}"])
    return table(["generator", "GPUs", *HOURS, "GB, SCST"], rows)


def plan() -> str:
    """A hundred million questions with bart-base: the time of one of n H100s, or of one of n cores."""
    results, count = json.loads(RESULTS.read_text()), 1e8
    found = hours(machines()["H100"], "bart-base", questions=count)
    windows = count / results["rows"]["reader's windows"]["rows_per_second"]
    lines = [
        ("generate", "H100", found["generate"], (1, 8, 64, 512)),
        ("score", "H100", found["score"], (1, 8, 64, 512)),
        ("augment, row filters", "core", filter_seconds() * count / 3600, (1, 8, 64, 512)),
        ("qa, windows", "core", windows / 3600, (1,)),
        ("qa, one reader", "H100", found["qa"], (1, 8, 64)),
    ]
    cells = [[name, device, *(_time(total / n) for n in counts)] for name, device, total, counts in lines]
    return table(["stage", "on", "1", "8", "64", "512"], [line + [""] * (6 - len(line)) for line in cells])


def _time(value: float) -> str:
    if value >= 100:
        return f"{value / 24:,.1f} days"
    return f"{value:.1f} h" if value >= 2 else f"{60 * value:.0f} min" if value > 1 / 30 else f"{3600 * value:.0f} s"


PARTS = (places, numbers, plan, full_size)

if __name__ == "__main__":
    if "--measure" in sys.argv:
        write({"processor": measure()})
    elif "--study" in sys.argv:
        write({"study": {str(dtype)[6:]: study(dtype) for dtype in (torch.bfloat16, torch.float32)}})
    else:
        for part in PARTS:
            print(f"{' '.join((part.__doc__ or '').split())}\n\n{part()}\n")
