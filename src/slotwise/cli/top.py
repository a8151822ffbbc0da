"""The command `slotwise top`: a live view of a server, of at most a screen."""

from __future__ import annotations

import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live

from slotwise.cli.following import LIVE
from slotwise.cli.service_tables import (
    Plain,
    console,
    jobs_table,
    pools_table,
    server_lines,
    text_of,
)
from slotwise.core.errors import SlotwiseError
from slotwise.service.clients.transport import Transport

REFRESH_SECONDS = 1.0

POOLS_MAX = 8
"""The most pools that are shown."""

JOBS_MAX = 50
"""The most running jobs, and the most of the queue, that the server is asked for."""

HEADINGS = 10
"""The lines of a screen that are neither pools nor jobs."""

BAR_WIDTH = 40


def view_of(transport: Transport) -> dict[str, Any]:
    """What is shown: the server, its pools, running jobs and the next ones in the queue."""
    running = transport.get("/v1/jobs", state="running", limit=JOBS_MAX)["jobs"]
    live: Any = {"state": LIVE, "limit": JOBS_MAX + len(running), "order": "oldest"}
    first = transport.get("/v1/jobs", **live)["jobs"]
    return {
        "server": transport.get("/v1"),
        "pools": transport.get("/v1/pools")["pools"],
        "running": running,
        "queue": [job for job in first if job["state"] != "running"],
    }


def print_once(transport: Transport) -> None:
    """Print the view, all that the server was asked for."""
    console().print(_rendered(view_of(transport), 2 * JOBS_MAX + POOLS_MAX + HEADINGS))


def show_live(transport: Transport) -> None:
    """Show the view until q is pressed, or an interrupt. An error of the server is shown."""
    screen = console()
    shown: RenderableType = ""
    with _keys() as has_keys, Live(console=screen, screen=True, auto_refresh=False) as live:
        while True:
            try:
                shown = _rendered(view_of(transport), screen.height)
                live.update(shown, refresh=True)
            except SlotwiseError as error:
                live.update(Group(text_of(f"slotwise: {error}", "red"), shown), refresh=True)
            if _is_left(has_keys):
                return


def _rendered(view: Plain, height: int) -> Group:
    """The view in at most this number of lines."""
    pools: Sequence[Plain] = view["pools"][:POOLS_MAX]
    left = max(2, height - HEADINGS - len(pools))
    running = view["running"][: max(1, left - min(len(view["queue"]), left // 3))]
    queue = view["queue"][: max(1, left - len(running))]
    now = time.time()
    parts: list[RenderableType] = [text_of(line) for line in server_lines(view["server"])]
    parts += [text_of(_bar(view["server"]), "cyan"), pools_table(pools)]
    for title, jobs, count in (
        ("running", running, len(view["running"])),
        ("next", queue, len(view["queue"])),
    ):
        more = f" ({len(jobs)} of {count} or more)" if len(jobs) < count else ""
        parts.append(text_of(f"{title}{more}", "bold"))
        if jobs:
            parts.append(jobs_table(jobs, now))
    return Group(*parts)


def _bar(server: Plain) -> str:
    """The slots that are busy, as a bar."""
    slots, busy = server.get("slots") or 0, server.get("busy") or 0
    if not isinstance(slots, int) or slots <= 0:
        return ""
    width = min(BAR_WIDTH, slots)
    full = min(width, round(width * busy / slots))
    return f"[{'#' * full}{'.' * (width - full)}]"


@contextmanager
def _keys() -> Iterator[bool]:
    """Receive keys as they are pressed; whether there are any."""
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield True
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_left(has_keys: bool) -> bool:
    """Wait until the next look; whether q was pressed."""
    if not has_keys:
        time.sleep(REFRESH_SECONDS)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], REFRESH_SECONDS)
    return bool(ready) and sys.stdin.read(1) in ("q", "Q")
