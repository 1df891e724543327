"""A stand-in for the Hub, in a thread on 127.0.0.1: repositories are made, and commits keep their files in memory."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from huggingface_hub import constants

from tests.json_server import JsonHandler, serving


class HubServer:
    """`files` has the content of each file by repository and path, `keys` what came as authorization. With `refuses`
    nobody may write.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.keys, self.refuses = set[str | None](), False
        outer = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                sent = self.body()
                outer.keys.add(self.headers.get("Authorization"))
                if outer.refuses:
                    return self.reply(403, {"error": "no right to write here"})
                return self.reply(200, outer.answer(self.path.partition("?")[0], sent))

            def do_GET(self) -> None:
                self.reply(404, {"error": "not found"})

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str, sent: bytes) -> Any:
        parts = path.removeprefix("/api/").split("/")  # models/me/name/preupload/main
        if parts[:2] == ["repos", "create"]:
            asked = json.loads(sent)
            name = f"{asked.get('type') or 'model'}s/{asked['organization']}/{asked['name']}"
            self.files.setdefault(name, {})
            return {"url": f"{self.address}/{asked['organization']}/{asked['name']}"}
        if parts == ["validate-yaml"]:  # of a card
            return {"errors": [], "warnings": []}
        repository, action = "/".join(parts[:3]), parts[3]
        if action == "preupload":
            names = [file["path"] for file in json.loads(sent)["files"]]
            return {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        assert action == "commit"
        for line in map(json.loads, sent.splitlines()):
            if line["key"] == "file":
                self.files[repository][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return {"commitUrl": f"{self.address}/{'/'.join(parts[1:3])}/commit/0", "commitOid": "0", "success": True}


@contextmanager
def hub_server() -> Iterator[HubServer]:
    if constants.is_offline_mode():
        pytest.skip("HF_HUB_OFFLINE is set: the client sends nothing")
    hub = HubServer()
    with serving(hub.server):
        yield hub
