"""`rl-qg serve`: what it needs, and what it reads."""

import socket
from pathlib import Path

import pytest
import torch

from rl_qg.commands import outputs, serving as serving_commands
from rl_qg.commands.compose import compose
from rl_qg.runtime.errors import InputError
from rl_qg.serving import server
from rl_qg.web.requests import VARIABLE


@pytest.mark.parametrize("package", serving_commands.PACKAGES)
def test_a_missing_package_is_named_with_what_installs_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(InputError, match=rf'{package} is not installed; install it: pip install "rl-qg\[serve\]"'):
        serving_commands.serve(compose("serve", []))


def test_keys_are_written_without_their_section() -> None:
    settings = compose("serve", ["model.path=RUN/scst", "port=8001", "origins=[https://a.example]", "rate=0.5"])
    assert (settings.serve.model.path, settings.serve.port, settings.serve.rate) == ("RUN/scst", 8001, 0.5)
    assert settings.serve.origins == ["https://a.example"]
    assert compose("serve", []).serve.host == "127.0.0.1"


def test_the_server_says_which_model_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    caplog.set_level("INFO")
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(InputError, match="is in use"):
        serving_commands.serve(compose("serve", [f"port={taken.getsockname()[1]}", "training.use_cpu=true"]))
    assert "model: packaged:english, for model.path has no value" in caplog.messages
    assert "embedded corpus" not in caplog.text


@pytest.mark.parametrize(
    ("host", "keys", "warned"), [("0.0.0.0", "", 1), ("0.0.0.0", "k" * 20, 0), ("127.0.0.1", "", 0)]
)
def test_a_server_that_others_reach_says_that_it_asks_for_no_key(
    host: str, keys: str, warned: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, keys)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    monkeypatch.setattr(server, "run_server", lambda *given: given[-1].close())
    serving_commands.serve(compose("serve", [f"host={host}", "port=0", "training.use_cpu=true"]))
    lines = [line for line in caplog.messages if "others can reach this server, and it asks for no key" in line]
    assert len(lines) == warned
