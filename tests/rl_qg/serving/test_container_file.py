"""The container file, read as text: what it copies exists, and what it starts are settings that there are."""

import json
import re
import tomllib

from rl_qg.commands.compose import compose
from tests.docs.markdown import ROOT

TEXT = (ROOT / "Containerfile").read_text().replace("\\\n", " ")


def lines(instruction: str) -> list[str]:
    return re.findall(rf"^{instruction} (.+)$", TEXT, re.MULTILINE)


def test_what_is_copied_exists_and_is_all_that_the_package_is_built_from() -> None:
    copied = [name for line in lines("COPY") for name in line.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], project["project"]["readme"]]
    assert {*needed, *project["project"]["license-files"], "pyproject.toml"} <= {*copied}
    [extra] = re.findall(r'"\.\[(\w+)\]"', TEXT)
    assert extra in project["project"]["optional-dependencies"]


def test_it_starts_a_server_that_can_be_reached_as_a_user_without_rights() -> None:
    program, command, *arguments = json.loads(lines("ENTRYPOINT")[0]) + json.loads(lines("CMD")[0])
    assert (program, command) == ("rl-qg", "serve")
    settings = compose(command, arguments).serve
    assert settings.host == "0.0.0.0" and settings.model.path == "/model"
    assert lines("EXPOSE") == [str(settings.port)]
    assert str(settings.port) in lines("HEALTHCHECK")[0] and "/readyz" in lines("HEALTHCHECK")[0]
    assert int(lines("USER")[0].split(":")[0]) > 0
