"""A server of root that runs work as accounts of this machine, for tests."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import slotwise
from service.conftest import RunningServer, end_processes
from slotwise.service.clients.client import Client

ANN, BOB = "daemon", "games"
"""The accounts of the users ann and bob: Debian's own, which nothing else uses."""

USERS = {"ann": ANN, "bob": BOB}

SERVE = """
import json, sys
from pathlib import Path
from slotwise.service.http.serving import serve_quietly
from slotwise.service.users.access import User
from slotwise.service.settings import NetworkSettings, Settings
folder, slots, accounts = json.loads(sys.argv[1])
users = {name: User(name, account) for name, account in accounts.items()}
network = NetworkSettings("127.0.0.1", 0)
settings = Settings(slots=slots, run_as=True, users=users, network=network)
sys.exit(serve_quietly(Path(folder), lambda: settings, path=Path(folder, "socket")))
"""

COVER = """
set -e
closed=$1; hold=$2; shift 2
number=0
for place in $NEEDED; do
    mkdir -p "$hold/$number"; mount --bind "$place" "$hold/$number"; number=$((number + 1))
done
mount -t tmpfs -o mode=755 none "$closed"
number=0
for place in $NEEDED; do
    mkdir -p "$place"; mount --move "$hold/$number" "$place"; number=$((number + 1))
done
exec "$@"
"""
"""Hides a folder that accounts may not enter, except for some folders in it.

An interpreter in the home of root cannot be run by others. The command sees another home.
"""


def closed_folder() -> Path | None:
    """The first folder on the way to this interpreter that accounts may not enter."""
    for place in needed():
        for folder in reversed(place.parents):
            if not folder.stat().st_mode & 0o001:
                return folder
    return None


def needed() -> list[Path]:
    """The folders that workers read."""
    package = Path(slotwise.__file__).parents[1]
    found = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), package]
    return [one for one in found if not any(other in one.parents for other in found)]


def uncovered() -> list[str]:
    """The words before a command for which accounts can run this interpreter."""
    closed = closed_folder()
    if closed is None:
        return []
    cover = ["unshare", "--mount", "--propagation", "private", "sh", "-c", COVER, "cover"]
    return [*cover, str(closed)]


def missing() -> str:
    """Why there can be no such server here; empty if there can."""
    if os.geteuid():
        return "only root can run work as other accounts"
    if any(name not in [one.pw_name for one in pwd.getpwall()] for name in (ANN, BOB)):
        return f"there are no accounts {ANN} and {BOB}"
    if not uncovered():
        return ""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"]).returncode:
        return "accounts cannot run the interpreter, which is in a folder of root"
    return ""


class AccountServer(RunningServer):
    """A server with one slot, or more, and its users."""

    slots = 1

    def begin(self) -> None:
        """Start it."""
        words = [str(self.folder / "service"), self.slots, USERS]
        cover = uncovered()
        if cover:
            hold = self.folder / "hold"
            hold.mkdir(exist_ok=True)
            cover.append(str(hold))
        closed, package = closed_folder(), str(Path(slotwise.__file__).parents[1])
        variables = {
            "NEEDED": " ".join(str(one) for one in needed() if closed in one.parents),
            "PYTHONPATH": package,
            "SECRET_OF_ROOT": "x",
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*cover, sys.executable, "-P", "-c", SERVE, json.dumps(words)],
                env=self.environ | variables,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client, which names the users of its calls."""
        with Client(self.url) as opened:
            yield opened


@contextmanager
def serving(slots: int = 1) -> Iterator[AccountServer]:
    """A server that is ready, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        server = AccountServer(Path(folder))
        server.slots = slots
        try:
            yield server.start()
        finally:
            if server.process is not None and server.process.poll() is None:
                server.end()
            end_processes(Path(folder, "service"))


@contextmanager
def folder_of(account: str, files: Mapping[str, str] | None = None) -> Iterator[Path]:
    """A private folder of an account, with files."""
    found = pwd.getpwnam(account)
    with tempfile.TemporaryDirectory(prefix="sw-of-") as name:
        folder = Path(name)
        for file, text in (files or {}).items():
            (folder / file).write_text(text)
        for one in (folder, *folder.iterdir()):
            os.chown(one, found.pw_uid, found.pw_gid)
        yield folder
