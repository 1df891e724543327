"""A folder of files that users may have: good ones, and ones that are broken in a known way.

Its folders are `data`, `models`, `rating`, `rewards_of_others`, `runs` and `studies`. The transcripts beside this file
name what is in them.
"""

import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import BartForConditionalGeneration, BertForMaskedLM, DistilBertForQuestionAnswering, GPT2LMHeadModel

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, write_squad
from tests.tiny_models import byte_tokenizer, piece_tokenizer, save, tiny

PASSAGE = "Ada wrote the first program in London in 1843."
QUESTION = {"id": "q", "question": "Who wrote it?", "answers": [{"text": "Ada", "answer_start": 0}]}
ROW = {"id": "r", "context": PASSAGE, "question": "Who wrote it?", "answer": "Ada", "answer_start": 0}


def build(root: Path) -> None:
    """Write everything below `root`."""
    for part, write in (
        ("data", _data),
        ("models", _models),
        ("rating", _rating),
        ("rewards_of_others", _rewards),
        ("runs", _runs),
        ("studies", _studies),
    ):
        (root / part).mkdir(parents=True)
        write(root / part)


# --- Data ---


def squad(*paragraphs: Any) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"title": "Ada", "paragraphs": list(paragraphs)}]}


def _paragraph(**changes: Any) -> dict[str, Any]:
    question = {key: value for key, value in {**QUESTION, **changes}.items() if value is not None}
    return squad({"context": PASSAGE, "qas": [question]})


def _data(folder: Path) -> None:
    write_squad(folder / "train.json", synthetic_examples(6, seed=1, prefix="train"))
    dev = list(synthetic_examples(3, seed=2, prefix="dev"))
    write_squad(folder / "dev.json", dev)
    _lines(folder / "questions.jsonl", [candidate(example) for example in dev])
    _lines(folder / "judgements.jsonl", [_judgement(example, number) for number, example in enumerate(dev)])
    _lines(folder / "passages.jsonl", [{"context": example.context} for example in dev[:2]])
    (folder / "passages.txt").write_text(f"{dev[0].context}\n\n{dev[-1].context}\n")
    for name, value in _broken_squad().items():
        (folder / name).write_text(json.dumps(value))
    for name, content in _broken_files((folder / "train.json").read_bytes()).items():
        (folder / name).write_bytes(content)
    for name, rows in _broken_rows(dev).items():
        _lines(folder / name, rows)
    (folder / "a_folder").mkdir()
    (folder / "mine.html").write_text("<title>mine</title>")
    (folder / "mine.json").write_text('{"mine": 1}')


def candidate(example: QAExample) -> dict[str, Any]:
    """A line of a questions file that holds the human question."""
    answer = example.answers[0]
    return {
        "id": example.id,
        "candidate": 0,
        "title": example.title,
        "context": example.context,
        "answer": answer.text,
        "answer_start": answer.start,
        "question": example.question,
        "logprob": -1.0,
    }


def _rating(folder: Path) -> None:
    good = {"context": PASSAGE, "question": "Who wrote it?", "answer": "Ada", "answer_start": 0}
    rows = {
        "other": [good],
        "no-context": [good, {"question": "Who?"}],
        "pipe": [good | {"system": "a|b"}],
    }
    for name, of_file in rows.items():
        _lines(folder / f"{name}.jsonl", of_file)
    start = "source: me\ntitle: Rate\nconsent: I agree\ninstructions: []\n"
    criteria = "criteria: [{name: a, statement: Good, low: bad, high: good}]\n"
    protocols = {
        "unknown-field": f"{start}{criteria}recipe: {{items: 20}}\ncriterion: x\n",
        "far": f"{start}{criteria}recipe: {{items: 4, repeats: 1, degraded: 1, distance: 4}}\n",
    }
    for name, text in protocols.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "plan").mkdir()
    (folder / "plan" / "plan.json").write_text('{"study": "another"}')


def _judgement(example: QAExample, number: int) -> dict[str, Any]:
    fields = {"context": example.context, "answer": example.answers[0].text, "references": [example.question]}
    return {"question": example.question, "system": "ab"[number % 2], "human": {"fluency": number % 5}, **fields}


def _broken_squad() -> dict[str, Any]:
    unanswerable = squad({"context": PASSAGE, "qas": [{**QUESTION, "answers": [], "is_impossible": True}]})
    return {
        "a_list.json": [],
        "an_object.json": {},
        "no_articles.json": {"data": []},
        "data_is_text.json": {"data": "train"},
        "article_is_text.json": {"data": ["Ada"]},
        "context_is_null.json": squad({"context": None, "qas": [QUESTION]}),
        "context_is_blank.json": squad({"context": " ", "qas": [QUESTION]}),
        "no_qas.json": squad({"context": PASSAGE}),
        "question_is_number.json": _paragraph(question=7),
        "question_is_blank.json": _paragraph(question="  "),
        "no_answers.json": _paragraph(answers=[]),
        "answers_are_text.json": _paragraph(answers="Ada"),
        "start_is_text.json": _paragraph(answers=[{"text": "Ada", "answer_start": "first"}]),
        "start_is_negative.json": _paragraph(answers=[{"text": "Ada", "answer_start": -5}]),
        "start_is_wrong.json": _paragraph(answers=[{"text": "Ada", "answer_start": 4000}]),
        "start_is_true.json": _paragraph(answers=[{"text": "Ada", "answer_start": True}]),
        "answer_not_there.json": _paragraph(answers=[{"text": "Grace", "answer_start": 0}]),
        "unanswerable.json": unanswerable,
        "same_ids.json": squad({"context": PASSAGE, "qas": [QUESTION, QUESTION]}),
    }


def _broken_files(good: bytes) -> dict[str, bytes]:
    row = json.dumps(ROW).encode()
    return {
        "empty.json": b"",
        "empty.jsonl": b"",
        "blank.txt": b"\n \n\n",
        "cut.json": good[: len(good) // 2],
        "latin1.json": json.dumps(_paragraph(question="Où?"), ensure_ascii=False).encode("latin-1"),
        "utf16.json": good.decode().encode("utf-16"),
        "latin1.jsonl": row + b'\n{"question": "O\xf9"}\n',
        "binary.txt": bytes(range(256)),
        "deep.json": b'{"data": ' + b"[" * 100_000,
        "html.json": b"<!DOCTYPE html><html><body>404</body></html>",
        "not_gzip.json.gz": good,
        "cut.json.gz": gzip.compress(good)[:200],
        "not_parquet.parquet": good,
        "empty.parquet": b"",
        "words.docx": b"PK\x03\x04",
        "second_line.jsonl": row + b"\n{oops\n",
        "a_list.jsonl": row + b"\n[1, 2]\n",
        "cut.jsonl": row + b"\n" + row[:30],
    }


def _broken_rows(dev: list[QAExample]) -> dict[str, list[dict[str, Any]]]:
    candidates = [candidate(example) for example in dev]
    blank = [{**row, "question": ""} for row in candidates]
    judgements = [_judgement(example, number) for number, example in enumerate(dev)]
    return {
        "blank_questions.jsonl": blank,
        "no_question.jsonl": [{"context": PASSAGE, "answer": "Ada"}],
        "no_context.jsonl": [{"question": "Who wrote it?", "answer": "Ada"}],
        "no_answer.jsonl": [{"question": "Who wrote it?", "context": PASSAGE}],
        "question_is_number.jsonl": [{**ROW, "question": 7}],
        "question_is_null.jsonl": [{**ROW, "question": None}],
        "surrogate.jsonl": [{**ROW, "question": "Who \ud800?"}],
        "has_score.jsonl": [{**ROW, "score": 1.0, "earlier_score": 1.0}],
        "one_candidate_lacks_context.jsonl": [candidates[0], {"id": "x", "question": "Who?"}],
        "start_is_wrong.jsonl": [{**candidates[0], "answer_start": 99999}],
        "one_rating.jsonl": judgements[:1],
        "no_ratings.jsonl": [{key: row[key] for key in ("question", "context", "answer")} for row in judgements],
        "ratings_are_text.jsonl": [{**row, "human": {"fluency": "good"}} for row in judgements],
        "equal_ratings.jsonl": [{**row, "human": {"fluency": 3}} for row in judgements],
        "no_passage.jsonl": [{"text": PASSAGE}],
    }


def _lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


# --- Models ---


def _models(folder: Path) -> None:
    text = [example.context for example in synthetic_examples(20, seed=3, prefix="text")]
    pieces = piece_tokenizer(text=text, size=300)
    generator = tiny(BartForConditionalGeneration, len(pieces), positions=256, forced_eos_token_id=None)
    good = folder / "bart"
    save(good, pieces, generator)
    reader = tiny(DistilBertForQuestionAnswering, len(pieces), positions=256)
    save(folder / "reader", pieces, reader)
    save(folder / "bert", pieces, tiny(BertForMaskedLM, len(pieces), positions=256))
    bytes_ = byte_tokenizer(text, {"bos_token": "<|e|>", "eos_token": "<|e|>"})
    save(folder / "gpt2", bytes_, tiny(GPT2LMHeadModel, len(bytes_), positions=256))
    for name, spoil in _SPOILED.items():
        for kind in ("bart", "reader", "bert"):
            copy = folder / f"{kind}-{name}"
            shutil.copytree(folder / kind, copy)
            spoil(copy)
    (folder / "empty").mkdir()
    (folder / "a_file").write_text("not a model")


def _without(*names: str) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        for path in model.iterdir():
            if path.name.startswith(names):
                path.unlink()

    return spoil


def _config(**changes: Any) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        path = model / "config.json"
        config = {**json.loads(path.read_text()), **changes}
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))

    return spoil


def _text(name: str, content: str) -> Callable[[Path], None]:
    return lambda model: (model / name).write_text(content) and None


def _cut_weights(model: Path) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _pickled_weights(model: Path) -> None:
    path = model / "model.safetensors"
    torch.save(load_file(path), model / "pytorch_model.bin")
    path.unlink()


def _weights(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Path], None]:
    def spoil(model: Path) -> None:
        path = model / "model.safetensors"
        save_file({key: change(value) for key, value in load_file(path).items()}, path, {"format": "pt"})

    return spoil


def _fewer_words(model: Path) -> None:
    """The model has a smaller vocabulary than its tokenizer."""
    path = model / "model.safetensors"
    weights = load_file(path)
    rows = json.loads((model / "config.json").read_text())["vocab_size"]
    fewer = {
        key: value[: rows - 50].clone() if value.shape[:1] == (rows,) else value for key, value in weights.items()
    }
    fewer = {
        key: value[:, : rows - 50].clone() if value.dim() == 2 and value.shape[1] == rows else value
        for key, value in fewer.items()
    }
    save_file(fewer, path, {"format": "pt"})
    _config(vocab_size=rows - 50)(model)


def _own_code(model: Path) -> None:
    own = {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}
    _config(model_type="nobody-knows", architectures=None, auto_map=own)(model)
    (model / "own.py").write_text("raise SystemExit('this code was run')\n")


_SPOILED: Mapping[str, Callable[[Path], None]] = {
    "no-tokenizer": _without("tokenizer", "special_tokens", "vocab"),
    "no-config": _without("config"),
    "no-weights": _without("model.safetensors"),
    "pickled-weights": _pickled_weights,
    "broken-config": _text("config.json", '{"model_type": "bart",'),
    "list-config": _text("config.json", "[]"),
    "no-type": _config(model_type=None, architectures=None),
    "other-type": _config(model_type="nobody-knows", architectures=None),
    "own-code": _own_code,
    "cut-weights": _cut_weights,
    "html-weights": _text("model.safetensors", "<!DOCTYPE html>"),
    "nan-weights": _weights(lambda value: torch.full_like(value, float("nan"))),
    "one-nan": _weights(lambda value: value if value.dim() < 2 else value.index_fill(0, torch.tensor([0]), torch.inf)),
    "fewer-words": _fewer_words,
    "broken-tokenizer": _text("tokenizer.json", '{"version": '),
    "broken-prompt": _text("prompt.json", "{"),
    "list-prompt": _text("prompt.json", "[]"),
    "other-prompt": _text("prompt.json", '{"format": 3, "prefix": null}'),
}


# --- Rewards ---


def _scoring(body: str, *, head: str = "", fields: str = "") -> str:
    """The source of a reward whose `score` has this body."""
    return f"{head}class Reward:\n{fields}    def score(self, questions, contexts, **more):\n        {body}\n"


_REWARDS = {
    "no_score": "class Reward:\n    pass\n",
    "score_is_number": "class Reward:\n    score = 3\n",
    "raises": _scoring('raise KeyError("weights")'),
    "exits": _scoring("raise SystemExit(0)"),
    "returns_none": _scoring("return None"),
    "returns_number": _scoring("return 1.0"),
    "returns_text": _scoring('return "good"'),
    "returns_texts": _scoring('return ["good" for _ in questions]'),
    "returns_dict": _scoring('return {"score": [1.0] * len(questions)}'),
    "too_few": _scoring("return [1.0]"),
    "nested": _scoring("return [[1.0] for _ in questions]"),
    "nan": _scoring('return [float("nan")] * len(questions)'),
    "nones": _scoring("return [None] * len(questions)"),
    "complex_numbers": _scoring("return [1j] * len(questions)"),
    "no_arguments": "class Reward:\n    def score(self):\n        return []\n",
    "no_keywords": "class Reward:\n    def score(self, questions, contexts):\n        return []\n",
    "parts_are_short": _scoring(
        'return SimpleNamespace(scores=[1.0] * len(questions), parts={"a": [1.0]})',
        head="from types import SimpleNamespace\n\n\n",
    ),
    "parts_are_list": _scoring(
        "return SimpleNamespace(scores=[1.0] * len(questions), parts=[1.0])",
        head="from types import SimpleNamespace\n\n\n",
    ),
    "needs_nonsense": _scoring("return [1.0] * len(questions)", fields='    needs = ("passage",)\n\n'),
    "init_raises": 'class Reward:\n    def __init__(self):\n        raise RuntimeError("no key")\n',
    "init_exits": "class Reward:\n    def __init__(self):\n        raise SystemExit(0)\n",
    "init_needs_more": "class Reward:\n    def __init__(self, path):\n        pass\n",
    "syntax_error": "class Reward\n",
    "import_error": "import nobody_has_this\n",
    "module_raises": "1 / 0\n",
    "module_exits": "import sys\n\nsys.exit(0)\n",
    "no_class": "x = 1\n",
    "a_number": "Reward = 3\n",
}


def _rewards(folder: Path) -> None:
    (folder / "__init__.py").touch()
    for name, source in _REWARDS.items():
        (folder / f"{name}.py").write_text(source)


# --- Runs and studies ---


def _runs(folder: Path) -> None:
    (folder / "empty").mkdir()
    for name, content in {"broken": "{", "list": "[]"}.items():
        (folder / name).mkdir()
        for file in ("run.json", "evaluation.json"):
            (folder / name / file).write_text(content)
        (folder / name / "config.yaml").write_text("a: [")
    (folder / "a_file").write_text("x")


def _studies(folder: Path) -> None:
    (folder / "empty.yaml").touch()
    (folder / "broken.yaml").write_text("a: [1,\n")
    (folder / "list.yaml").write_text("- 1\n")
    (folder / "unknown_key.yaml").write_text("generator: bart\n")
    (folder / "key_twice.yaml").write_text("preset: smoke\npreset: paper\n")
    (folder / "nul.yaml").write_text('output_dir: "a\\0b"\n')
    (folder / "imports.yaml").write_text("generators:\n  mine:\n    reward._target_: somebody.elses.Reward\n")
    (folder / "latin1.yaml").write_bytes("name: Où\n".encode("latin-1"))
