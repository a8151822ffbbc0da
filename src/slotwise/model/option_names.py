"""The names of options in messages, as the user has written them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

SHORTER = {"attempts_max": "attempts", "epoch_seconds": "epoch"}
"""Options that have a shorter name on the command line."""

_is_command: ContextVar[bool] = ContextVar("is_command", default=False)


def option_name(name: str) -> str:
    """An option as the caller writes it: `dask_slots`, or `--dask-slots` in a command."""
    if not _is_command.get():
        return name
    return f"--{SHORTER.get(name, name).replace('_', '-')}"


@contextmanager
def as_in_commands() -> Iterator[None]:
    """Write options as on the command line."""
    token = _is_command.set(True)
    try:
        yield
    finally:
        _is_command.reset(token)
