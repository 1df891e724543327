"""Commands that are drawn: a valid one of each kind, with settings and data files changed in drawn ways."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from math import inf
from typing import Any, get_args

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from rl_qg.commands.catalogue import COMMANDS, groups_of, offered, section_of
from rl_qg.settings import Settings
from rl_qg.settings.keys import _CHECKS, Limits, Section
from tests.properties.mutations import kinds

_TRAIN = "data.train=in/train.json data.validation=in/dev.json output_dir=run preset=smoke"
VALID = {
    "pipeline": f"{_TRAIN} model.path=models/bart qa.model.path=models/reader reward=form",
    "train": f"{_TRAIN} model.path=models/bart reward=form",
    "trim": "model.path=models/bart corpus=in/train.json output_dir=small",
    "answers": "in/passages.txt output=answers.jsonl",
    "ask": "in/document.md output=pairs.jsonl model.path=models/bart",
    "models": "lmqg/t5-base-squad-qag",
    "train-answers": f"{_TRAIN} train_answers.model.path=models/bert",
    "train-kpqa": f"{_TRAIN} train_kpqa.model.path=models/bert",
    "train-sentences": f"{_TRAIN} train_sentences.model.path=models/bert",
    "train-selector": "data.train=in/dev.json model.path=models/bart output=selector.json",
    "generate": "model.path=models/bart data.train=in/dev.json output=q.jsonl do_sample=true num_samples=2 "
    "max_new_tokens=6",
    "augment": "questions=in/ce.jsonl gold=in/dev.json output=augmented.json num_samples=10",
    "qa": f"{_TRAIN} qa.model.path=models/reader",
    "qa-evaluate": "data=in/dev.json questions=in/ce.jsonl output=qa.json qa.model.path=models/reader preset=smoke",
    "retrieve": "questions=in/train.json data=in/dev.json output_dir=run preset=smoke retrieve.model.path=models/bert",
    "score": "reward=bleu4 input=in/scored.jsonl output=s.jsonl",
    "merge": "made/q.part-1-of-2.jsonl made/q.part-2-of-2.jsonl output=q.jsonl",
    "export": "questions=in/scored.jsonl format=preferences output=p.jsonl",
    "evaluate": "predictions=in/ce.jsonl references=in/dev.json metrics=[bleu4,rouge_l,form] resamples=40 output=ev",
    "correlate": "human=in/judgements.jsonl metrics=[rouge_l,form] resamples=40 output=cor",
    "robustness": "input=in/dev.json metrics=[rouge_l] resamples=40 output=rob",
    "separate": "reward=form data.train=in/train.json data.validation=in/dev.json resamples=40 output=sep",
    "explain": "reward=qrelscore reward.encoder=models/bert reward.decoder=models/gpt2 question=Who? context=Ada. "
    "output=why.html",
    "baselines": "reward=qrelscore reward.encoder=models/bert reward.decoder=models/gpt2 data.train=in/dev.json "
    "pairs=3 output=b.json",
    "serve": "model.path=models/bart port=0",
    "search": "in/search.yaml --dry-run",
    "study": "in/study.yaml --dry-run",
    "bench": "data data=in/train.json output_dir=bench",
    "bench transfer": "in/transfer.yaml --dry-run",
    "bench report": "made/evaluation output=board",
    "rate plan": "questions={ce:in/ce.jsonl,scst:in/scst.jsonl} gold=in/dev.json output=plan",
    "rate serve": "plan=study/plan study=new.db port=0",
    "rate status": "study=study/study.db",
    "rate export": "study=study/study.db output=ratings",
    "rate forget": "study=study/study.db rater=r0001",
    "rate analyse": "ratings=in/ratings.jsonl resamples=40 output=analysis",
    "rate demo": "output=demo port=0",
    "report": "made/evaluation --output r.html",
    "estimate": "score reward=bleu4 input=in/scored.jsonl",
}
"""A valid command of each kind, with its arguments."""
FILES = {
    "ask": ["in/document.html"],
    "score": ["in/ce.jsonl", "in/table.csv", "in/rows.jsonl"],
    "bench": [
        "in/squad_v2_repairs.json",
        "in/hotpotqa.json",
        "in/ms_marco.jsonl",
        "in/qg_bench.jsonl",
        "in/table.tsv",
    ],
    "robustness": ["in/rows.jsonl"],
    "merge": ["made/q.part-2-of-2.jsonl", "made/q.part-1-of-2.jsonl.settings.json"],
    "qa": ["in/rows.jsonl", "in/lmqg_pairs.jsonl"],
    "rate serve": ["study/plan/plan.json", "study/plan/hits.jsonl"],
    "rate analyse": ["study/ratings/ratings.jsonl", "study/ratings/plan.json"],
    "rate plan": ["in/protocol.yaml", "in/judgements.jsonl"],
    "search": ["in/train.json"],
    "study": ["in/train.json", "in/dev.json"],
    "bench transfer": ["made/a/test.json", "made/b/train.json"],
    "bench report": ["made/evaluation/evaluate.json"],
}
"""More files that a command may read; the first of its arguments that is a file is replaced by one."""
PATHS = (
    "in/dev.json",
    "in/train.json",
    "in/ce.jsonl",
    "in/passages.txt",
    "in",
    "models/bart",
    "models/bert",
    "missing",
)
TEXTS = (
    "",
    " ",
    "x",
    "-",
    "null",
    "[]",
    "{}",
    "a b",
    "Où 東京",
    "a\nb",
    "../x",
    "/proc/x/y",
    "\udcff",
    "${seed}",
    "'",
)
WRONG = (
    "x",
    "null",
    "",
    "[]",
    "[1]",
    "{a: 1}",
    "true",
    "1e3",
    "nan",
    "inf",
    "-inf",
    "1.5",
    "-1",
    "0x10",
    "1_000",
    "²",
)
LARGE = (2**31, 2**32, 2**63, 10**30)
EACH = 6  # hypothesis varies each example a few times before it draws another


@dataclass(frozen=True)
class Draw:
    """A command line without `rl-qg`, and the change of one file before it: its name, the kind, and where."""

    words: tuple[str, ...]
    change: tuple[str, str, float] | None = None


@dataclass(frozen=True)
class Key:
    name: str
    kind: Any
    choices: tuple[Any, ...]
    limits: Limits | None


@cache
def all_keys() -> tuple[Key, ...]:
    return tuple(_keys(Settings(), ""))


def _keys(owner: Section, prefix: str) -> Iterator[Key]:
    for item in fields(owner):
        value, name = getattr(owner, item.name), prefix + item.name
        if isinstance(value, Section):
            yield from _keys(value, f"{name}.")
        else:
            check = _CHECKS.get(item)
            limits = check if isinstance(check, Limits) else None
            yield Key(name, item.type, item.metadata.get("choices", ()), limits)


def keys_of(command: str) -> list[Key]:
    """The keys that a command reads; those of its own section without the section's name."""
    catalogue = COMMANDS[command]
    own = f"{section_of(command)}."
    return [
        Key(key.name.removeprefix(own), key.kind, key.choices, key.limits)
        for key in all_keys()
        if any(key.name == part or key.name.startswith(f"{part}.") for part in catalogue.sections)
    ]


def _number(value: float, whole: bool) -> str:
    return str(int(value) if whole else value)


def _numbers(limits: Limits, whole: bool) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Values within, and at or beyond the border."""
    low = limits.low if limits.low > -inf else -5
    high = min(limits.high, low + 12)
    step = 1 if whole else 1e-6
    within: Any = st.integers(int(low), int(high)) if whole else st.floats(low, high, allow_nan=False)
    border = [low, low - step, low + step, limits.high, limits.high + step, -0.0, *([] if whole else [1e-300, 1e300])]
    large = [str(value) for value in LARGE]
    return within.map(str), st.sampled_from([_number(value, whole) for value in border if abs(value) < inf] + large)


def values(key: Key) -> st.SearchStrategy[str]:
    """Values of a key as they are typed: mostly valid ones, some at the border, some wrong."""
    types = get_args(key.kind) or (key.kind,)
    wrong: st.SearchStrategy[str] = st.sampled_from(WRONG)
    if key.choices:
        known: Any = st.sampled_from(["null" if name is None else str(name) for name in key.choices])
        return _mostly(known, st.sampled_from([*TEXTS, *WRONG]))
    if bool in types:
        return _mostly(st.sampled_from(["true", "false"]), wrong)
    if int in types or float in types:
        within, border = _numbers(key.limits or Limits(0), int in types)
        return _mostly(st.one_of(within, st.just("null")) if type(None) in types else within, border, wrong)
    if "list" in str(key.kind):
        inner = st.lists(st.sampled_from(["1", "2", "3", "8", "0", "-1", "x", "1.5"]), max_size=3)
        return _mostly(inner.map(lambda items: f"[{','.join(items)}]"), wrong)
    return st.sampled_from([*TEXTS, *PATHS, *WRONG])


def _mostly(valid: st.SearchStrategy[str], *others: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(valid, valid, valid, *others)


@st.composite
def commands(draw: st.DrawFn, names: tuple[str, ...] = tuple(VALID)) -> Draw:
    """A command with none to three of its keys set, and in half of the draws a changed data file."""
    name = draw(st.sampled_from(names))
    words = [*name.split(), *shlex.split(VALID[name])]
    change = _drawn_change(draw, name, words) if draw(st.booleans()) else None
    catalogue = "bench" if name.startswith("bench") else name
    if name in ("merge", "models", "report", "estimate", "search", "study", "bench transfer", "bench report"):
        words += draw(
            st.lists(st.sampled_from([*TEXTS, *PATHS, "seeds=[1]", "output_dir=x", "x=1", "rungs=[]"]), max_size=1)
        )
        return Draw(tuple(words), change)
    keys = keys_of(catalogue)
    for key in draw(st.lists(st.sampled_from(keys), max_size=3, unique_by=lambda key: key.name)):
        words.append(f"{key.name}={draw(values(key))}")
    groups = [group for group in groups_of(catalogue) if group != "model"] if catalogue != "bench" else []
    if groups and draw(st.integers(0, 9)) == 0:
        group = draw(st.sampled_from(groups))
        words.append(f"{group}={draw(st.sampled_from([*offered(group), *TEXTS]))}")
    return Draw(tuple(words), change)


def _drawn_change(draw: st.DrawFn, name: str, words: list[str]) -> tuple[str, str, float] | None:
    own = [part for word in words for part in _paths(word)]
    if not (files := [*own, *FILES.get(name, [])]):
        return None
    file = draw(st.sampled_from(files))
    if file not in own and own and file.startswith("in/"):
        at = next(i for i, word in enumerate(words) if own[0] in word)
        words[at] = words[at].replace(own[0], file)
    return file, draw(st.sampled_from(kinds(file))), draw(st.floats(0, 0.999))


def _paths(word: str) -> list[str]:
    """The data files in a word."""
    parts = word.replace("{", " ").replace("}", " ").replace(",", " ").replace("=", " ").replace(":", " ").split()
    return [part for part in parts if part.startswith("in/")]


def drawn(number: int, of_seed: int, strategy: st.SearchStrategy[Draw]) -> list[Draw]:
    """So many draws of a seed, always the same ones."""
    found: list[Draw] = []

    @seed(of_seed)
    @settings(
        max_examples=EACH * number,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=[*HealthCheck],
    )
    @given(strategy)
    def note(one: Draw) -> None:
        found.append(one)

    note()
    return found[::EACH]
