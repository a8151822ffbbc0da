"""Scripts of golden logs: what worker processes do, and what happens when. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OWN = "stop", "continue", "kill", "interrupt", "write"
"""What happens to the machine; all else is done by a user."""


@dataclass(frozen=True)
class Does:
    """What a worker process does with one task.

    how   "done": the function of the task is called; or "returns", "copies", "fails", "lacks",
          "exits", "killed", "garbles"
    what  what it returns: a value, or the records and bytes of a `TaskResult`; the seconds for
          which a task that is done has copied; the text of the failure; phase, task and attempt
          of the output that it lacks; the exit code; the signal
    stop  the seconds from a stop request to its end, and the value that it keeps; None: it does
          not stop. With a third value, a hook stops it
    """

    seconds: float
    how: str = "done"
    what: Any = None
    stop: tuple[Any, ...] | None = None


class At:
    """Something that happens at an instant, in seconds from the beginning.

    do    something that happens to the machine (`OWN`), with the numbers of worker processes in
          the order of their starts, or the path of a file. Else a user of a session calls this
          method of it, or "x.name", one of the result x. A user who still waits for a result
          does so after that
    to    the name of the result; "@x" as an argument stands for the result x
    """

    def __init__(self, at: float, do: str, *args: Any, to: str = "", **options: Any) -> None:
        self.at, self.do, self.args, self.to, self.options = at, do, args, to, options


@dataclass(frozen=True)
class Script:
    """What happens: tasks in the order in which they are sent, instants, seconds of commits.

    After the last of the tasks come the `others` again and again.
    """

    tasks: Sequence[Does] = ()
    at: Sequence[At] = ()
    others: Sequence[Does] = (Does(1.0),)
    commit_seconds: float = 0.25
