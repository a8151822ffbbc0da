"""Starts a server in the background for a command that has found none."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from slotwise.core.errors import SlotwiseError
from slotwise.service.transport import NoServerError, Transport
from slotwise.service.wire import socket_of

START_SECONDS = 30.0
"""How long a server may take until it answers."""

POLL_SECONDS = 0.05

COMMAND = ("-m", "slotwise", "serve", "--background")


def started_if_wanted(transport: Transport) -> bool:
    """Offer to start the user's server, and start it; False where nobody can be asked.

    SlotwiseError if it does not start.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()) or transport.path != socket_of():
        return False
    question = f"no server listens at {transport.path}; start one in the background? [Y/n] "
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
        return False
    start_server(transport)
    return True


def start_server(transport: Transport) -> None:
    """Start a server of its own process group, and wait until it answers. SlotwiseError."""
    until = time.monotonic() + START_SECONDS
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, *COMMAND],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=printed,
            start_new_session=True,
        )
        while time.monotonic() < until:
            try:
                transport.get("/v1")
                return
            except NoServerError:
                if process.poll():
                    break
            time.sleep(POLL_SECONDS)
        printed.seek(0)
        said = printed.read().decode(errors="replace").strip()
    raise SlotwiseError(
        f"the server did not start: {said or 'it did not answer in time'}; `slotwise serve`"
        " starts it here"
    )
