"""Models that bring code of their own: it is never run, and nobody is asked whether it should be."""

import ast
import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BartForConditionalGeneration, BloomForCausalLM

from rewards import MetricInputError
from rewards.frozen import FrozenModel
from rl_qg.generation.loading import load_causal, load_config_and_tokenizer, load_seq2seq
from rl_qg.judging.paraphrases import seq2seq
from rl_qg.readers import reader
from rl_qg.readers.encoders import load_tokenizer
from rl_qg.runtime.errors import InputError
from tests.test_layers import modules, tree_of
from tests.tiny_models import piece_tokenizer, save, tiny

ONE_LINE = (
    r"needs code of its own \(auto_map\), which is not run; give one whose type and tokenizer transformers knows"
)
OWN = {
    "AutoConfig": "own.OwnConfig",
    **{f"AutoModel{kind}": "own.OwnModel" for kind in ("", "ForSeq2SeqLM", "ForCausalLM", "ForQuestionAnswering")},
}


def reward(kind: str) -> Callable[[str], Any]:
    return lambda path: FrozenModel(path, kind, device="cpu", dtype="float32")


LOADERS: dict[str, Callable[[str], Any]] = {
    "generator": load_seq2seq,
    "causal generator": load_causal,
    "first look at a generator": load_config_and_tokenizer,
    "tokenizer of a reader": lambda path: reader.load_tokenizer(path, max_length=16),
    "reader": reader.load_model,
    "answers": lambda path: load_tokenizer(path, "answers.extractor"),
    "paraphraser": lambda path: seq2seq(path, "paraphraser", use_cpu=True),
    **{f"reward of kind {kind}": reward(kind) for kind in ("seq2seq", "causal", "encoder")},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions that were asked; each is answered with yes."""
    questions: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda text="": questions.append(text) or "y")
    return questions


def with_own_code(folder: Path, kind: Any = BartForConditionalGeneration, **changes: dict[str, Any]) -> Path:
    """A good model in `folder`, with code that notes that it was run; `changes` are new keys of its JSON files."""
    tokenizer = piece_tokenizer(["who wrote it ?", "Ada wrote it ."], 40)
    save(folder, tokenizer, tiny(kind, len(tokenizer)))
    (folder / "own.py").write_text(f"open({str(folder / 'was_run')!r}, 'w').close()\nclass OwnConfig: pass\n")
    for name, values in changes.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


@pytest.mark.parametrize("loader", LOADERS)
def test_a_model_of_an_unknown_type_is_one_line(tmp_path: Path, asked: list[str], loader: str) -> None:
    folder = with_own_code(tmp_path / "model", config={"model_type": "nobodys", "auto_map": OWN})
    with pytest.raises((InputError, MetricInputError), match=ONE_LINE) as caught:
        LOADERS[loader](str(folder))
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value)
    assert not asked and not (folder / "was_run").exists()


@pytest.mark.parametrize("loader", ["causal generator", "reward of kind causal"])
def test_a_tokenizer_of_an_unknown_type_is_one_line(tmp_path: Path, asked: list[str], loader: str) -> None:
    """The library has Bloom's model, and no tokenizer of its own for it."""
    own = {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    folder = with_own_code(tmp_path / "model", BloomForCausalLM, tokenizer_config=own)
    with pytest.raises((InputError, MetricInputError), match=ONE_LINE):
        LOADERS[loader](str(folder))
    assert not asked and not (folder / "was_run").exists()


@pytest.mark.parametrize("loader", ["generator", "reward of kind seq2seq"])
def test_a_model_of_a_known_type_is_loaded_without_its_code(tmp_path: Path, asked: list[str], loader: str) -> None:
    own = {"auto_map": {"AutoTokenizer": ["own.OwnTokenizer", None]}}
    folder = with_own_code(tmp_path / "model", config={"auto_map": OWN}, tokenizer_config=own)
    LOADERS[loader](str(folder))
    assert not asked and not (folder / "was_run").exists()


OTHERS = {"QuestionGenerator", "SetGenerator", "SentenceClassifier", "package"}  # none loads a class by its name


def test_every_loading_of_a_model_says_that_its_code_is_not_run() -> None:
    """`from_pretrained` and `from_config` are only called, with the argument, whatever the class is."""
    calls = 0
    for name, path in modules("rewards", "rl_qg").items():
        tree = tree_of(path)
        safe = {
            id(call.func)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call)
            and any(ast.unparse(part) == "trust_remote_code=False" for part in call.keywords)
        }
        for part in ast.walk(tree):
            if not isinstance(part, ast.Attribute) or part.attr not in ("from_pretrained", "from_config"):
                continue
            if ast.unparse(part.value).split(".")[0] not in OTHERS:
                assert id(part) in safe, f"{name}: line {part.lineno}: {ast.unparse(part)}"
                calls += 1
    assert calls > 15
