"""Generation keeps every candidate, sorts by passage length, and writes the same file after a kill."""

import json
import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch
from accelerate import PartialState
from transformers.utils.logging import disable_progress_bar, enable_progress_bar

from rewards.arithmetic import VARIABLE
from rl_qg.data.examples import QAExample
from rl_qg.generation import generate as module
from rl_qg.generation.generate import ByLength, Reranker, generate
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_seq2seq
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.settings import GenerateSettings, Settings
from tests.full_disk import room_for
from tests.questions import example
from tests.tiny_models import tiny, tiny_bart, word_tokenizer

WORDS = " ".join(f"w{k}" for k in range(20))
BEAMS = GenerateSettings(num_beams=3, max_new_tokens=6, batch_size=2)
SAMPLES = replace(BEAMS, do_sample=True, num_samples=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = word_tokenizer(WORDS)
    bart = tiny_bart(len(tokenizer))
    bart.generation_config.no_repeat_ngram_size = 2  # checkpoints may ship such settings; they must have no effect
    bart.generation_config.forced_bos_token_id = 7
    bart.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def data(count: int = 7) -> list[QAExample]:
    return [
        example(" ".join(f"w{(k + j) % 20}" for j in range(3 + k)), f"w{(k + 1) % 20}", "", id=f"e{k}")
        for k in range(count)
    ]


def run(  # type: ignore[no-untyped-def]
    model: str, output: Path, settings: GenerateSettings = BEAMS, seed: int = 0, examples=None, **options: Any
) -> list[dict[str, Any]]:
    generate(
        model,
        data() if examples is None else examples,
        output,
        settings=settings,
        seed=seed,
        state=PartialState(cpu=True),
        **options,
    )
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.mark.parametrize(("settings", "count"), [(BEAMS, 3), (SAMPLES, 4)])
def test_every_candidate_is_kept_longest_passages_first(
    model: str, tmp_path: Path, settings: GenerateSettings, count: int
) -> None:
    rows = run(model, tmp_path / "q.jsonl", settings)
    longest_first = reversed(range(7))  # `data` grow longer
    assert [(row["id"], row["candidate"]) for row in rows] == [
        (f"e{k}", c) for k in longest_first for c in range(count)
    ]
    for row in rows:
        assert row["context"][row["answer_start"] :].startswith(row["answer"])
        assert row["logprob"] < 0
    by_example = [[row["logprob"] for row in rows if row["id"] == f"e{k}"] for k in range(7)]
    if settings.do_sample:
        assert all(group == sorted(group, reverse=True) for group in by_example)


def test_examples_are_sorted_by_length_in_windows_and_ties_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW", 5)
    contexts = ["bb", "dddd", "bb", "a", "ccc", "a", "EEEEE", "BB"]
    items = [example(text, text, "", id=str(k)) for k, text in enumerate(contexts)]
    ordered = ByLength(items)
    assert [item.id for item in ordered] == ["1", "4", "0", "2", "3", "6", "7", "5"]
    assert list(ordered) == list(ordered) and len(ordered) == 8
    assert list(ByLength([])) == []


def test_questions_in_another_order_are_refused(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(model, tmp_path / "q.jsonl")
    monkeypatch.setattr(module, "WINDOW", 4)
    with pytest.raises(
        InputError, match=r"made with other settings \(order: longest of 4096 first -> longest of 4 first\)"
    ):
        run(model, tmp_path / "q.jsonl")


@pytest.mark.parametrize("settings", [BEAMS, SAMPLES])
def test_log_probabilities_equal_those_of_a_second_forward_pass(
    model: str, settings: GenerateSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding sums them token by token; here the model reads whole questions again."""
    generator = CandidateGenerator(model, device=torch.device("cpu"))
    seen: list[torch.Tensor] = []
    original = generator.encoder.decoded

    def decoded(tokens: torch.Tensor, examples: Sequence[QAExample]) -> list[str]:
        seen.append(tokens)
        return original(tokens, examples)

    monkeypatch.setattr(generator.encoder, "decoded", decoded)
    top_p = 0.8 if settings.do_sample else None
    groups = generator.candidates(data(), 4, max_new_tokens=6, top_p=top_p, temperature=1.5)
    batch = generator.batch(data())
    with torch.inference_mode():
        decoder: Any = generator.decoder
        expected = decoder.logprobs(decoder.encoded(batch), seen[0]).sum(-1).view(7, 4).tolist()
    for group, values in zip(groups, expected, strict=True):
        wanted = sorted(values, reverse=True) if top_p else values
        assert [candidate.logprob for candidate in group] == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_packed_layers_and_bf16_find_the_same_beams_as_float32(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probabilities of `tiny_bart` are far apart: no beam changes, and only bf16 changes a value visibly."""
    monkeypatch.setenv(VARIABLE, "never")
    plain = run(model, tmp_path / "plain.jsonl")
    monkeypatch.setenv(VARIABLE, "always")
    packed = run(model, tmp_path / "packed.jsonl")
    assert [row["question"] for row in packed] == [row["question"] for row in plain]
    assert [row["logprob"] for row in packed] == pytest.approx([row["logprob"] for row in plain], rel=1e-5)
    rough = run(model, tmp_path / "rough.jsonl", replace(BEAMS, precision="bf16"))
    assert [row["id"] for row in rough] == [row["id"] for row in plain]
    assert [row["logprob"] for row in rough] != [row["logprob"] for row in plain]
    best = [[row["logprob"] for row in rows if row["candidate"] == 0] for rows in (rough, plain)]
    assert best[0] == pytest.approx(best[1], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "fp16"}, r"precision=fp16 is not one of no, bf16"),
        ({"batch_size": 0}, r"batch_size=0 must be at least 1"),
        ({"num_samples": 0}, r"num_samples=0 must be at least 1"),
        ({"max_new_tokens": 0}, r"max_new_tokens=0 must be at least 1"),
        ({"temperature": 0.0}, r"temperature=0.0 must be above 0"),
        ({"top_p": 0.0}, r"top_p=0.0 is not in \(0, 1\]"),
        ({"top_p": 2.0}, r"top_p=2.0 is not in \(0, 1\]"),
    ],
)
def test_an_invalid_setting_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"generate\.{message}"):
        Settings(generate=replace(BEAMS, **changes)).check()
    Settings(generate=replace(BEAMS, top_p=1.0)).check()


def test_more_beams_than_words_are_one_line(model: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"generate\.num_beams=3000 is above the \d+ tokens that .* knows: lower it"):
        run(model, tmp_path / "q.jsonl", replace(BEAMS, num_beams=3000))


def test_the_logprob_of_a_beam_is_the_sum_over_its_tokens(model: str) -> None:
    """Against the score of the library, which is the mean over the tokens."""
    generator = CandidateGenerator(model, device=torch.device("cpu"))
    (candidates,) = generator.candidates(data(1), 3, max_new_tokens=6, top_p=None, temperature=1.0)
    batch = generator.encoder.batch(data(1))
    output = generator.model.generate(
        **batch,
        num_beams=3,
        num_return_sequences=3,
        do_sample=False,
        length_penalty=1.0,
        early_stopping=False,
        max_new_tokens=6,
        no_repeat_ngram_size=0,
        forced_bos_token_id=None,
        forced_eos_token_id=None,
        return_dict_in_generate=True,
        output_scores=True,
    )
    lengths = [(row != generator.tokenizer.pad_token_id).sum().item() - 1 for row in output.sequences]
    expected = [score.item() * length for score, length in zip(output.sequences_scores, lengths, strict=True)]
    assert [candidate.logprob for candidate in candidates] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("settings", [BEAMS, SAMPLES])
@pytest.mark.parametrize("cut", [1, 0.3, 0.5, 0.77, 0.999])
def test_a_killed_run_continues_without_a_missing_or_repeated_line(
    model: str, tmp_path: Path, settings: GenerateSettings, cut: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tmp_path / "whole.jsonl"
    run(model, whole, settings)
    killed = tmp_path / "killed.jsonl"
    run(model, killed, settings)
    size = killed.stat().st_size
    with killed.open("rb+") as stream:
        stream.truncate(int(size * cut) if cut != 1 else size)
    decoded = []
    original = CandidateGenerator.candidates
    monkeypatch.setattr(CandidateGenerator, "candidates", lambda *a, **k: decoded.append(1) or original(*a, **k))
    run(model, killed, settings)
    assert killed.read_bytes() == whole.read_bytes()
    if cut == 1:
        assert not decoded  # nothing was computed again


def test_other_settings_other_data_and_an_unknown_file_are_refused(model: str, tmp_path: Path) -> None:
    output = tmp_path / "q.jsonl"
    run(model, output)
    before = output.read_bytes()
    with pytest.raises(InputError, match=r"made with other settings \(num_beams: 3 -> 2\)"):
        run(model, output, replace(BEAMS, num_beams=2))
    with pytest.raises(InputError, match=r"made with other settings \(data: [0-9a-f]{8} -> [0-9a-f]{8}\)"):
        run(model, output, examples=data(3))
    assert output.read_bytes() == before
    unknown = tmp_path / "notes.jsonl"
    unknown.write_text("mine\n")
    with pytest.raises(InputError, match="was not made by this command"):
        run(model, unknown)
    assert unknown.read_text() == "mine\n"


def test_samples_depend_on_the_seed(model: str, tmp_path: Path) -> None:
    first, again, other = (run(model, tmp_path / f"{k}.jsonl", SAMPLES, seed=s) for k, s in enumerate((0, 0, 1)))
    assert first == again != other


def test_samples_do_not_depend_on_the_batch(model: str, tmp_path: Path) -> None:
    small, large = (run(model, tmp_path / f"{size}.jsonl", replace(SAMPLES, batch_size=size)) for size in (1, 4))
    assert len({row["question"] for row in small}) > 10
    assert [row["question"] for row in small] == [row["question"] for row in large]
    assert [row["logprob"] for row in small] == pytest.approx([row["logprob"] for row in large], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [BEAMS, SAMPLES])
def test_a_batch_that_does_not_fit_into_memory_is_decoded_in_parts(
    model: str,
    tmp_path: Path,
    settings: GenerateSettings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = replace(settings, batch_size=7)
    whole = run(model, tmp_path / "whole.jsonl", settings)
    original, room = CandidateGenerator.candidates, 2

    def short_of_memory(self: CandidateGenerator, examples: list[QAExample], *args: Any, **options: Any) -> Any:
        if len(examples) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return original(self, examples, *args, **options)

    monkeypatch.setattr(CandidateGenerator, "candidates", short_of_memory)
    parts = run(model, tmp_path / "parts.jsonl", settings)
    assert [row["question"] for row in parts] == [row["question"] for row in whole]
    assert [row["logprob"] for row in parts] == pytest.approx([row["logprob"] for row in whole], rel=1e-5)
    assert caplog.text.count("do not fit into memory") == 1
    room = 0
    with pytest.raises(InputError, match=r"a single row does not fit into memory; ask for fewer candidates"):
        run(model, tmp_path / "none.jsonl", settings)


def test_a_changed_source_is_refused_unless_the_user_accepts_it(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 4)  # examples that are added form a separate window
    output, whole = tmp_path / "q.jsonl", tmp_path / "whole.jsonl"
    before, now = {"train.json": "0123456789"}, {"train.json": "abcdefghij"}
    run(model, output, examples=data(4), sources=before)
    text = output.read_bytes()
    with pytest.raises(
        InputError,
        match=r"train\.json: has changed since .* \(SHA-256 01234567, now abcdefgh\).*accept_changed_data=true",
    ):
        run(model, output, sources=now)
    assert output.read_bytes() == text
    run(model, output, sources=now, accept_changed_data=True)  # more examples: continues after the existing lines
    run(model, whole)
    assert output.read_bytes() == whole.read_bytes()
    run(model, output, sources=now)  # the note now names these data
    with pytest.raises(InputError, match=r"line 1 is not about the example in its place"):
        run(model, output, examples=data()[1:], sources=before, accept_changed_data=True)
    with pytest.raises(InputError, match=r"line 13 is not about the example in its place"):
        run(model, output, examples=data(4), sources=before, accept_changed_data=True)
    assert output.read_bytes() == whole.read_bytes()


def test_lines_about_other_examples_are_not_deleted(model: str, tmp_path: Path) -> None:
    output = tmp_path / "q.jsonl"
    rows = run(model, output)
    rows[4]["context"] = "mine"
    text = "".join(json.dumps(row) + "\n" for row in rows)
    output.write_text(text)
    with pytest.raises(InputError, match=r"line 5 is not about the example in its place"):
        run(model, output)
    assert output.read_text() == text


def test_a_full_disk_is_one_line_and_the_same_command_continues(model: str, tmp_path: Path) -> None:
    output, whole = tmp_path / "q.jsonl", tmp_path / "whole.jsonl"
    run(model, whole)
    disable_progress_bar()  # standard error may be a file, which has no more room either
    with (
        room_for(whole.stat().st_size * 2 // 3),
        pytest.raises(InputError, match=r"q\.jsonl: cannot be written further .* make room, and the same command"),
    ):
        run(model, output)
    enable_progress_bar()
    batch = 2 * BEAMS.num_beams
    assert output.read_bytes() == b"".join(whole.read_bytes().splitlines(keepends=True)[: 2 * batch])
    assert sorted(path.name for path in tmp_path.iterdir() if "whole" not in path.name) == [
        "q.jsonl",
        "q.jsonl.settings.json",
    ]
    run(model, output)
    assert output.read_bytes() == whole.read_bytes()


def test_memory_holds_no_more_examples_than_a_window_and_a_round(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WINDOW", 3)
    most = 3 + BEAMS.batch_size
    alive: WeakSet[QAExample] = WeakSet()

    class Tracked(QAExample):
        __hash__ = object.__hash__

    class Stream:
        def __len__(self) -> int:
            return 7

        def __iter__(self) -> Iterator[QAExample]:
            for item in data():
                tracked = Tracked(**vars(item))
                alive.add(tracked)
                assert len(alive) <= most + 1  # and the one being read
                yield tracked
                del tracked

    assert run(model, tmp_path / "stream.jsonl", examples=Stream()) == run(model, tmp_path / "list.jsonl")


def test_an_error_names_a_folder_without_a_seq2seq_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no model folder"):
        load_seq2seq(str(tmp_path))
    from transformers import GPT2LMHeadModel

    tokenizer = word_tokenizer(WORDS)
    tiny(GPT2LMHeadModel, len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="a gpt2 model is no seq2seq model"):
        load_seq2seq(str(tmp_path))


def test_settings_of_the_other_way_to_decode_are_said_to_have_no_effect(
    model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = run(model, tmp_path / "plain.jsonl")
    assert "no effect" not in caplog.text
    assert run(model, tmp_path / "beams.jsonl", replace(BEAMS, top_p=0.3, temperature=2.0)) == plain
    run(model, tmp_path / "samples.jsonl", replace(SAMPLES, num_beams=3))
    assert [message for message in caplog.messages if "no effect" in message] == [
        "generate.top_p=0.3 has no effect with do_sample=false",
        "generate.temperature=2.0 has no effect with do_sample=false",
        "generate.num_beams=3 has no effect with do_sample=true",
    ]


def test_the_note_names_the_generator_and_its_reward(model: str, tmp_path: Path) -> None:
    for stage in ("ce", "scst"):
        shutil.copytree(model, tmp_path / "run" / stage)
    write_json(tmp_path / "run" / "trained.json", {"model": "scst", "steps": 9, "reward": "length|version:1"})
    for stage, reward in (("ce", None), ("scst", "length|version:1")):
        path = str(tmp_path / "run" / stage)
        run(path, tmp_path / f"{stage}.jsonl")
        note = read_json(tmp_path / f"{stage}.jsonl.settings.json")
        assert (note["model_path"], note["reward"]) == (path, reward)


def test_a_file_of_empty_questions_is_an_error_also_when_the_command_is_repeated(tmp_path: Path) -> None:
    tokenizer = word_tokenizer(WORDS)
    silent = tiny_bart(len(tokenizer))
    silent.final_logits_bias = torch.zeros(1, len(tokenizer)).index_fill(
        1, torch.tensor([tokenizer.eos_token_id]), 1e4
    )
    silent.save_pretrained(tmp_path / "silent")
    tokenizer.save_pretrained(tmp_path / "silent")
    for _ in range(2):
        with pytest.raises(InputError, match=r"q\.jsonl: all questions are empty: the model .*silent ends before"):
            run(str(tmp_path / "silent"), tmp_path / "q.jsonl", replace(BEAMS, num_beams=1))


def test_a_reward_that_fails_on_every_candidate_is_an_error(model: str, tmp_path: Path) -> None:
    def fails(examples: Any, questions: Any) -> list[float]:
        return [math.nan] * len(questions)

    with pytest.raises(InputError, match=r"q\.jsonl: the reward failed on every question; correct the reward"):
        run(model, tmp_path / "q.jsonl", reranker=Reranker("fails", fails))
