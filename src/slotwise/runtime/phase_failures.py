"""Where tasks of a phase have failed, and on which hosts it therefore begins nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

SUSPECT = 3
"""So many attempts of a phase that fail in a row make their host suspect.

One less than the attempts of a task by default, so that a task can still run elsewhere.
"""


class PhaseFailures:
    """The failures of the tasks of a phase, by task and by host. Lost attempts are none."""

    __slots__ = ("_hosts_of", "_in_a_row")

    def __init__(self) -> None:
        self._hosts_of: dict[int, set[str]] = {}
        self._in_a_row: Counter[str] = Counter()

    def note(self, task: int, host: str) -> None:
        """A task has failed on a host."""
        self._hosts_of.setdefault(task, set()).add(host)
        self._in_a_row[host] += 1

    def clear(self, host: str) -> None:
        """A task has succeeded on a host."""
        self._in_a_row.pop(host, None)

    def other(self, task: int, hosts: Iterable[str]) -> str | None:
        """The first of these hosts where the task has not failed, if there is one."""
        has_failed = self._hosts_of.get(task, ())
        return next((host for host in hosts if host not in has_failed), None)

    def suspects(self, hosts: Iterable[str]) -> Collection[str]:
        """The suspect hosts; empty if all of these hosts are suspect."""
        suspects = {host for host, count in self._in_a_row.items() if count >= SUSPECT}
        return suspects if suspects and not suspects.issuperset(hosts) else ()
