"""The files in configs/accelerate/: accelerate reads each of them, and the command in its head is valid."""

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser

from rl_qg.commands.compose import compose

PROJECT = Path(__file__).resolve().parents[3]
FILES = sorted((PROJECT / "configs" / "accelerate").glob("*.yaml"))
ZERO = {
    f"zero{stage}{'_offload' if offload else ''}": (stage, "cpu" if offload else "none")
    for stage in (1, 2, 3)
    for offload in (False, True)
}
TYPES = {"single_gpu": "NO", "multi_gpu": "MULTI_GPU", "multi_node": "MULTI_GPU", "cpu2": "MULTI_GPU", "fsdp": "FSDP"}
TYPES |= dict.fromkeys(ZERO, "DEEPSPEED")


def commands(path: Path) -> list[str]:
    """The commands in the head of a launch configuration, without line breaks."""
    text = path.read_text(encoding="utf-8").replace(" \\\n#   ", " ")
    return re.findall(r"^# (accelerate launch .+)$", text, re.MULTILINE)


def test_every_documented_configuration_exists() -> None:
    assert {path.stem for path in FILES} == TYPES.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_accelerate_reads_it(path: Path) -> None:
    config = load_config_from_file(str(path))  # raises for an unknown key
    assert str(getattr(config.distributed_type, "value", config.distributed_type)) == TYPES[path.stem]
    assert config.mixed_precision == "no"  # another value would override training.precision=no
    assert config.num_processes % config.num_machines == 0
    assert config.use_cpu == (path.stem == "cpu2")
    if path.stem in ZERO:
        stage, device = ZERO[path.stem]
        assert config.deepspeed_config["zero_stage"] == stage
        assert config.deepspeed_config["offload_optimizer_device"] == device
        assert config.deepspeed_config["offload_param_device"] == (device if stage == 3 else "none")
        assert config.deepspeed_config["zero3_save_16bit_model"] == (stage == 3)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_command_in_its_head_is_valid(path: Path) -> None:
    assert commands(path)
    for command in commands(path):
        launch = launch_command_parser().parse_args(shlex.split(command)[2:])  # fails the test where it is not valid
        assert launch.config_file == f"configs/accelerate/{path.name}"
        script = Path(launch.training_script)
        assert (PROJECT / script).is_file()
        settings = compose(script.stem, launch.training_script_args)  # raises for an unknown key or choice
        assert settings.training.use_cpu == (path.stem == "cpu2")


def test_each_of_several_machines_has_its_command() -> None:
    ranks = [
        launch_command_parser().parse_args(shlex.split(command)[2:]).machine_rank
        for command in commands(PROJECT / "configs" / "accelerate" / "multi_node.yaml")
    ]
    assert ranks == [0, 1]


@pytest.mark.slow
@pytest.mark.distributed
def test_two_machines_make_one_run(tmp_path: Path) -> None:
    """Two launchers on this machine, one process each: both processes take part in one sum."""
    script = tmp_path / "sum.py"
    script.write_text(
        "import torch\n"
        "from accelerate import PartialState\n"
        "state = PartialState(cpu=True)\n"
        "total = torch.tensor([state.process_index + 1])\n"
        "torch.distributed.all_reduce(total)\n"
        "print('sum', int(total), 'of', state.num_processes, flush=True)\n"
        "torch.distributed.destroy_process_group()\n"
    )
    options = "--num_machines 2 --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port"
    options = f"--config_file configs/accelerate/multi_node.yaml {options} {free_port()}"
    launchers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "accelerate.commands.launch",
                *options.split(),
                "--machine_rank",
                rank,
                str(script),
            ],
            cwd=PROJECT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ("0", "1")
    ]
    try:
        outputs = [launcher.communicate(timeout=120)[0] for launcher in launchers]
    finally:
        for launcher in launchers:
            launcher.kill()
    assert all("sum 3 of 2" in text for text in outputs), outputs


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
