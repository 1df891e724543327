"""What processes of a group agree on, without a group."""

import pytest
from transformers.integrations.deepspeed import (
    is_deepspeed_zero3_enabled,
    set_hf_deepspeed_config,
    unset_hf_deepspeed_config,
)

from rl_qg.runtime.processes import load_unsharded, processes


def test_models_are_loaded_whole_once_arguments_for_zero_3_exist() -> None:
    class Arguments:
        def is_zero3(self) -> bool:
            return True

    held = Arguments()  # transformers has a weak reference
    set_hf_deepspeed_config(held)
    try:
        assert is_deepspeed_zero3_enabled()
        load_unsharded()
        assert not is_deepspeed_zero3_enabled()
    finally:
        unset_hf_deepspeed_config()


def test_fsdp_on_a_cpu_is_said_to_shard_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processes(True)
    assert "FSDP" not in caplog.text
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    processes(True)
    assert "FSDP: on CPU accelerate uses plain data parallelism" in caplog.text
