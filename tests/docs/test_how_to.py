"""Every command of the pages below docs/ runs as written, but for stand-ins of what its reader has.

The tutorial and the README are in `test_commands.py`. Here a page's commands meet a folder with data, models and a
finished run (`theirs`). `…` stands for the keys of `COMPLETED`, and models of the Hub for those of `REPLACED`.
"""

import ast
import gzip
import json
import re
import shlex
import shutil
from glob import glob
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import MBart50Tokenizer, MBartForConditionalGeneration

from rl_qg.commands.catalogue import RAW
from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.parts import DataPart
from rl_qg.miniatures.cache import SHIPPED
from tests.bad_input.workspace import candidate
from tests.chat_server import chat_server
from tests.docs.benchmark_files import write_benchmark_files
from tests.docs.markdown import ROOT, blocks, commands
from tests.docs.serving_commands import serve_study_until_ready, serve_until_ready
from tests.lmqg_outputs import join_pairs_as_lmqg
from tests.rl_qg.data.test_published_layouts import HOTPOT, MARCO, as_columns
from tests.tiny_models import byte_tokenizer, coded_tokenizer, save, tiny, tiny_t5

PAGES = sorted(page for part in ("how-to", "explanation", "reference") for page in (ROOT / "docs" / part).glob("*.md"))
PAGES.append(ROOT / "docs" / "sets.md")
ADDED = "preset=smoke"  # to a command that names no preset
REPLACED = {
    "preset=quickstart": ADDED,
    "preset: quickstart": "preset: smoke",  # whose miniatures are made in seconds
    "model.path=gpt2": f"model.path={SHIPPED / 'gpt2'}",
    "model=gpt2": "model=miniature-gpt2",
    "model.path=runs/search/best": "model.path=RUN/ce",
    "packaged:english/reader,READER": "packaged:english/reader,miniature:reader",  # one that refuses something
    "model.path=runs/sets": "model.path=SETS",  # one that has learned to end its questions
    "model.path=lmqg/t5-base-squad-qag": "model.path=miniature:questions",
    "generator=lmqg/t5-base-squad-ae": "generator=miniature:questions",
    "model.path=./theirs model.format=mrm8488-ap": "model.path=miniature:questions",
    "strategy=paragraph_one2many model.path=valhalla/t5-base-e2e-qg": "strategy=sentence_one2many model.path=SETS",
    "model=bart-large": "model=miniature",
    "model=prefix model.path=ENCODER": "model=prefix model.path=bert reward_models.bert=bert reward_models.gpt2=gpt2",
    "model=mbart-large-50": "model.path=my-mbart50",
    "model.path=google/mt5-small": "model.path=my-t5",
    "model.path=distilbert-base-uncased": "model.path=miniature:distilbert",
    "gold=dev.json output=plan": "gold=train.json output=plan",  # whose passages these questions are about
    "preset=kpqa-paper": f"{ADDED} model.path=miniature:bert head=tanh keep=best repetitions=2",
    "parts=64 'cluster.parameters={timeout_min: 240, slurm_partition: gpu, gpus_per_node: 1}'": (
        "parts=2 cluster.kind=local"
    ),
    # Without WordNet, without ten models for five languages, and trained in a moment.
    "negation=either": "negation=not",
    "'paraphraser={_target_: experiments.robustness.back_translation.BackTranslation}'": "",
    "positives=10000 negatives=10000": "positives=4 negatives=4",
    "supervised=[experiments.robustness.classifiers.DecAtt,experiments.robustness.classifiers.Encoder]": "'supervised="
    "[{_target_: experiments.robustness.classifiers.DecAtt, folds: 2, epochs: 1}]'",
}
# Of language models, for which a stand-in answers.
ADDRESSES = ("http://127.0.0.1:8000/v1", "https://api.openai.com/v1")
# The sizes that the preset has for the embedded corpus, to be quick on files too.
FEW = {
    "data.max_train": "32",
    "data.max_validation": "16",
    "data.labelled_fraction": "0.5",
    "training.eval_samples": "8",
    "evaluation.max_examples": "8",
    "evaluation.check_reward": "4",
}
# The keys that a page leaves to its reader, and that `…` stands for.
COMPLETED = {
    "pipeline": FEW | {"augment.num_samples": "20"},
    "train": {
        **FEW,
        "data.train": "train.json",
        "data.validation": "dev.json",
        "output_dir": "runs/{}",
        "reward_models.bart": "BART",
    },
    "train-sentences": {key: value for key, value in FEW.items() if key.startswith("data.")},
    "generate": {"model.path": "RUN/ce", "data.train": "train.json", "output": "generated-{}.jsonl"},
    "baselines": {"pairs": "20", "reward_models.bert": "bert", "reward_models.gpt2": "gpt2"},
    "score": {"reward_models.bert": "bert", "reward_models.gpt2": "gpt2", "reward_models.bart": "BART"},
    "train-selector": {"candidates": "8"},  # texts: those of an untrained model rarely end
    "qa-evaluate": {"qa.model.path": "miniature:distilbert"},
    "retrieve": {"retrieve.model.path": "bert"},
    "augment": {"questions": "questions.jsonl", "gold": "train.json", "output": "augmented-{}.json"},
}
PACKAGED = (
    "settings=["
    + ",".join(
        f"{key}={SHIPPED / name}"
        for key, name in {
            **{"model.path": "bart", "qa.model.path": "distilbert"},
            **{f"reward_models.{name}": name for name in ("bert", "gpt2", "roberta", "bart")},
        }.items()
    )
    + "]"
)
MY_REWARD = """
class MyReward:
    needs = frozenset({"contexts"})

    def score(self, questions, contexts=None, *, answers=None, references=None):
        return [float(len(question)) for question in questions]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What readers of the pages have: data in several forms, model folders and a finished run. Made once."""
    folder = tmp_path_factory.mktemp("theirs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write_data()
        _write_published_layouts()
        _write_models()
        Path("my_package.py").write_text(MY_REWARD)
        run_command("pipeline", [ADDED, "output_dir=RUN"])
        learned = [f"model.path={SHIPPED / 'bart'}", "ask.granularity=sentence", "stages=ce", "ce.epochs=3"]
        run_command("train", [ADDED, *learned, "output_dir=SETS"])
        shutil.rmtree("RUN/qa/gold")
        shutil.copytree(SHIPPED / "reader", "RUN/qa/gold")  # one that finds answers
        for run in ("runs/a", "runs/b"):
            shutil.copytree("RUN", run)
    return folder


def _write_data() -> None:
    train = list(synthetic_examples(8, seed=1, prefix="t", wordings="training"))
    generated = list(synthetic_examples(8, seed=1, prefix="t", wordings="held_out"))  # other questions, same passages
    dev = list(synthetic_examples(4, seed=2, prefix="d"))
    new, far = (list(synthetic_examples(4, seed=3, prefix=prefix)) for prefix in "nf")
    for name, examples in (
        ("train", train),
        ("dev", dev),
        ("test", dev),
        ("other", train),
        ("more", new),
        ("augmented", train),
        ("xquad", far),
    ):
        write_squad(f"{name}.json", examples)
    for name in ("dev-v1.1", "du_test-v1.1"):
        Path(f"{name}.json.gz").write_bytes(gzip.compress(Path("dev.json").read_bytes()))
    passages = "\n".join(dict.fromkeys(example.context for example in new)) + "\n"
    for name in ("contexts.txt", "target.txt", "more.txt"):
        Path(name).write_text(passages)
    rows = [_row(example) for example in new]
    _lines("target.jsonl", [row | {"question": "", "answers": [_answer(row)]} for row in rows])
    _lines("answers.jsonl", [row | {"answers": [_answer(row)]} for row in rows])
    for name in ("questions", "ce", "scst", "candidates"):
        _lines(f"{name}.jsonl", [_row(example) for example in generated])
    table = ["GENQ\tREFQ\tPASSAGE\tFLUENCY\tSIMILAR\tFIRST\tSECOND"]
    table += [
        f"{row['question']}\t{row['question']}\t{row['context']}\t{n % 5}\t{n % 3}\t{n % 2}\t"
        for n, row in enumerate(rows)
    ]
    Path("ratings.tsv").write_text("\n".join(table) + "\n")
    _write_pairs(dev)
    _write_sets(dev)
    write_benchmark_files()
    _lines(
        "judgements.jsonl", [{**row, "human": {"fluency": n % 5}, "system": "ab"[n % 2]} for n, row in enumerate(rows)]
    )
    columns = {"q": "question", "c": "context", "a": "answer", "r": "question", "s": "context"}
    for name, column in columns.items():
        Path(f"{name}.txt").write_text("".join(f"{row[column]}\n" for row in rows))
    table = ["prediction\tpassage\tanswer", *("\t".join((r["question"], r["context"], r["answer"])) for r in rows)]
    Path("table.tsv").write_text("\n".join(table) + "\n")


def _write_pairs(examples: list[QAExample]) -> None:
    """Pairs of a system about the passages of dev.json: a pair a row, and as a file of lmqg's."""
    _lines("pairs.jsonl", [_row(example) for example in examples])
    pairs: dict[str, list[tuple[str, str]]] = {}
    for example in examples:
        pairs.setdefault(example.context, []).append((example.question, example.answers[0].text))
    Path("passages.txt").write_text("".join(f"{context}\n" for context in pairs))
    Path("lmqg.txt").write_text("".join(f"{join_pairs_as_lmqg(group)}\n" for group in pairs.values()))


def _write_sets(examples: list[QAExample]) -> None:
    """Sets of three systems about the passages of dev.json."""
    human: dict[str, list[str]] = {}
    for example in examples:
        human.setdefault(example.context, []).append(example.question)
    for name, take in {"one2many": slice(2), "rand": slice(1), "oracle": slice(None)}.items():
        rows = [{"context": context, "questions": questions[take]} for context, questions in human.items()]
        _lines(f"{name}.jsonl", rows)


def _write_published_layouts() -> None:
    """Files in the layouts of published data sets, under the names that these have."""
    shutil.copy("train.json", "train-v1.1.json")
    Path("hotpot_train_v1.1.json").write_text(json.dumps(HOTPOT))
    Path("train_v2.1.json").write_text(json.dumps(as_columns(MARCO)))
    shutil.copy("q.txt", "src-test.txt")
    shutil.copy("q.txt", "tgt-test.txt")
    for stem, year in (("train/train.txt", 1204), ("dev/dev.txt.shuffle.dev", 1340)):
        Path(stem).parent.mkdir(exist_ok=True)
        for part, line in {
            "source": f"mill {year} burned in {year} .",
            "target": f"when did mill {year} burn ?",
        }.items():
            Path(f"{stem}.{part}.txt").write_text(f"{line}\n" * 2)
        Path(f"{stem}.bio").write_text("O O O O B O\n" * 2)


def _row(example: QAExample) -> dict[str, Any]:
    """A line of a questions file, with the human question as its reference too."""
    return {**candidate(example), "references": [example.question]}


def _answer(row: dict[str, Any]) -> dict[str, Any]:
    return {"text": row["answer"], "answer_start": row["answer_start"]}


def _lines(path: str, rows: list[dict[str, Any]]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def _write_models() -> None:
    for name in ("bart", "my-bart", "BART", "bert", "gpt2", "distilbert", "READER", "OTHER"):
        kind = {"my-bart": "bart", "BART": "bart", "READER": "reader", "OTHER": "reader"}.get(name, name)
        shutil.copytree(SHIPPED / kind, name)
    shutil.copytree(SHIPPED / "bart", "lmqg/t5-base-squad-qg")  # a published name, and so its format
    torch.save(load_file("BART/model.safetensors"), "bart_score.pth")
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = byte_tokenizer([Path("contexts.txt").read_text()], roles)
    save("my-t5", tokenizer, tiny_t5(len(tokenizer)))
    tokenizer = coded_tokenizer(MBart50Tokenizer, Path("contexts.txt").read_text())
    special = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    save("my-mbart50", tokenizer, tiny(MBartForConditionalGeneration, len(tokenizer), positions=256, **special))


def lines_of(page: Path) -> list[str]:
    """The commands of a page, each once."""
    found = [line for block in blocks(page) if block.language in ("", "bash") for line in commands(block.code)]
    return [line for line in dict.fromkeys(found) if re.match(r"(rl-qg|accelerate launch) ", line)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if lines_of(page)],
    ids=lambda page: page.relative_to(ROOT / "docs").with_suffix("").as_posix(),
)
def test_every_command_runs(page: Path, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for block in blocks(page):
        if block.title.endswith((".yaml", ".txt")):
            Path(block.title).write_text(replaced(block.code))
    written: set[Path] = set()
    for number, line in enumerate(lines_of(page)):
        run_line(line, number, written)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_compiles_and_its_imports_exist(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            tree = ast.parse(block.code.replace("…", "..."))
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module([*imports], []), page.name, "exec"), {})


def run_line(line: str, number: int, written: set[Path]) -> None:
    """Run one command in this folder, and look whether it wrote what it names. `written` has the page's outputs."""
    if address := next((one for one in ADDRESSES if one in line), ""):
        with chat_server() as chat:
            return run_line(line.replace(address, chat.url), number, written)
    words = shlex.split(replaced(line))
    if words[0] == "accelerate":
        words = without_launcher(words)
    if words[1] == "serve":
        serve_until_ready(words[1:])
        return
    if words[1:3] in (["rate", "serve"], ["rate", "demo"]):
        serve_study_until_ready(words[1:])
        return
    words = completed(words, number)
    words = [name for word in words for name in (sorted(glob(word)) if "part-*" in word else [word])]
    named = [Path(word.partition("=")[2]) for word in words if re.match(r"output(_dir)?=", word)]
    parts = [DataPart.parse(word.removeprefix("part=")) for word in words if word.startswith("part=")]
    replaced_first = {*named} - written if parts else set[Path]()
    named = [part.path(output) for output in named for part in parts] or named
    planned = words[1] == "search" or words[1:3] == ["bench", "transfer"]  # which are not run
    outputs = [] if planned else named
    for output in ({*outputs} - written) | replaced_first:  # ours is for pages that only read it
        shutil.rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)
    run_command(words[1], words[2:])
    written.update(outputs)
    for output in outputs:
        assert output.exists(), f"{line}: nothing at {output}"


def replaced(text: str) -> str:
    for words, stand_in in REPLACED.items():
        text = text.replace(words, stand_in)
    return text


def without_launcher(words: list[str]) -> list[str]:
    """The same command in this process. `tests/distributed` starts the files of configs/accelerate."""
    place = next(place for place, word in enumerate(words) if word.endswith(".py"))
    assert (ROOT / words[place]).exists() and "launch" in words[:place]
    for option, value in pairwise(words):
        assert option != "--config_file" or (ROOT / value).exists(), f"{value}: no such file"
    return ["rl-qg", Path(words[place]).stem, *words[place + 1 :]]


def completed(words: list[str], number: int) -> list[str]:
    """A command with the keys that `…` stands for, and with small models and few updates."""
    name = words[1]
    if name == "estimate":
        model = ["qa.model.path=distilbert"] if words[2] == "qa" else []  # a miniature is pretrained on all rows
        of_command = completed([words[0], *words[2:], *model], number)[1:]
        return [*words[:2], *(word for word in of_command if not word.startswith("output"))]  # it writes none
    is_small = any(Path(word).name.startswith("small") for word in words)
    if (name in ("search", "study") or words[1:3] == ["bench", "transfer"]) and not is_small:
        models = [PACKAGED] if name == "study" else []  # else three sets of miniatures would be made first
        return [
            *dict.fromkeys([*words, *models, "--dry-run"])
        ]  # the pages' take days; tests/rl_qg/studies run small ones
    if name in RAW:
        return words
    given = {word.partition("=")[0] for word in words}
    keys = COMPLETED.get(name, {})
    if re.search(r"reward=(reader|gated)|\{reader:", " ".join(words)):
        keys = {**keys, "reward_models.reader": "READER"}
    if "strategy" in given:
        keys = {**keys, "candidates": "8"}  # as for train-selector
    more = [f"{key}={value.format(number)}" for key, value in keys.items() if key not in given]
    return [*(word for word in words if word != "…"), *more, *([] if ADDED in given or ADDED in words else [ADDED])]
