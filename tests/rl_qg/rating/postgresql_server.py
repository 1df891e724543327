"""A real PostgreSQL server from the system's packages, in a temporary folder, reached through a socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

USER = "postgres"
OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=60 -k"


def why_none() -> str:
    """Why no server can be started here; empty: one can."""
    if _programs() is None:
        return "no PostgreSQL server is installed (apt-get install postgresql)"
    if os.geteuid() == 0 and (_account() is None or shutil.which("setpriv") is None):
        return "PostgreSQL does not run as root, and there is no user postgres"
    return "" if find_spec("psycopg") else "psycopg is not installed"


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The address of a server with an empty database, which ends with the block."""
    programs, account = _programs(), _account()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="rl-qg-pg-"))  # short: the path of a socket has at most 107 characters
    as_user: list[str] = []
    if os.geteuid() == 0 and account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
        as_user = ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]

    def run(program: str, *arguments: str) -> None:
        command = [*as_user, str(programs / program), "-D", str(folder / "data"), *arguments]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 0, done.stderr

    try:
        run("initdb", "-U", USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        run("pg_ctl", "start", "-w", "-l", str(folder / "log"), "-o", f"{OPTIONS} {folder}")
        try:
            yield f"postgresql://{USER}@/{USER}?host={folder}"
        finally:
            run("pg_ctl", "stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [
        Path(path) for path in [shutil.which("initdb")] if path
    ]
    return found[-1].parent if found else None


def _account() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        return None
