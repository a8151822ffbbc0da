"""What users may do with jobs, how many they may have, and names that are theirs alone."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slotwise.core.errors import InputError, SlotwiseError, shown
from slotwise.service.planned.hosted import TASKS_MAX
from slotwise.service.settings import Settings
from slotwise.service.store.records import StoredJob
from slotwise.service.users.access import ForbiddenError, Role, User

MARK = "\x1f"
"""Between a user and a name that one of its clients chose; no user has it in its name."""

HIDDEN: Mapping[str, Any] = {
    **dict.fromkeys(("name", "reason"), ""),
    **dict.fromkeys(("output", "code", "stream")),
}
"""What lists show instead of the commands, reasons and outputs of jobs of other users."""


class LimitError(SlotwiseError):
    """A user has as many jobs as it may have."""


def may_see(user: User, record: StoredJob, settings: Settings) -> bool:
    """Whether a user may see and change all of a job: its own, or one in a pool it manages."""
    return record.user == user.name or user.may(Role.MANAGE, *settings.pools_of(record.pool))


def check_sees(user: User, record: StoredJob, settings: Settings, what: str) -> None:
    """ForbiddenError unless a user may see and change all of a job."""
    if not may_see(user, record, settings):
        raise ForbiddenError(
            f"job {record.id!r} is one of user {record.user!r}; to {what}, user {user.name!r}"
            f" needs the role 'manage' in pool {record.pool!r}"
        )


def check_submits(user: User, pool: object, settings: Settings) -> None:
    """ForbiddenError unless a user may submit to a pool; other checks refuse what is none."""
    if isinstance(pool, str) and not user.may(Role.SUBMIT, *settings.pools_of(pool)):
        own = ", ".join(map(shown, user.roles)) or "none"
        raise ForbiddenError(
            f"user {user.name!r} may not submit to pool {shown(pool)}, but to {own};"
            " an administrator of the server gives the role"
        )


def with_pool(user: User, stated: Mapping[str, Any], settings: Settings) -> Mapping[str, Any]:
    """The properties of a job that a user submits, with its pool.

    Without one, or in `default`, where the user may not submit, the job goes to the only pool
    where the user may.
    """
    default = "default"
    if stated.get("pool", default) != default or user.may(Role.SUBMIT, default):
        return stated
    inner = {one.parent for one in settings.pools}
    own = [
        one.name
        for one in settings.pools
        if one.name not in inner and user.may(Role.SUBMIT, *settings.pools_of(one.name))
    ]
    return {**stated, "pool": own[0]} if len(own) == 1 else stated


def check_names(user: User, named: object) -> None:
    """ForbiddenError if a user names another one, and may not."""
    if named not in (None, user.name):
        user.check(Role.ADMIN, f"submit for user {shown(named)}")


def row_for(user: User, record: StoredJob, row: dict[str, Any], settings: Settings) -> Any:
    """The row of a job in a list, as a user may see it."""
    return row if may_see(user, record, settings) else {**row, **HIDDEN}


def scoped(user: User, own: User, name: str) -> str:
    """A name that a client chose, for its user alone; those of the own account stay.

    InputError for a name of another user.
    """
    owner, mark, _ = name.rpartition(MARK)
    if mark and owner != user.name:
        raise InputError(f"{shown(name)} has a control character; choose another name")
    return name if mark or user.name == own.name else f"{user.name}{MARK}{name}"


def plain_name(name: str) -> str:
    """The opposite of `scoped`."""
    return name.rpartition(MARK)[2]


class JobQuota:
    """The jobs that are not over, by user, but for those of the own account. Thread-safe."""

    def __init__(self, own: User, jobs: Iterable[tuple[str, str | None]]) -> None:
        self._own, self._lock = own.name, threading.Lock()
        self._tasks: dict[str, dict[str, int]] = {}  # By user and job; 0 of those of before.
        for job, user in jobs:
            self._of(user)[job] = 0

    def reserve(self, user: str | None, jobs: Mapping[str, int], most: int) -> None:
        """Count new jobs, each with its tasks.

        LimitError if the user has too many then, and none is counted.
        """
        with self._lock:
            own = self._of(user)
            if user != self._own and len(own) + len(jobs) > most:
                raise LimitError(
                    f"user {user!r} has {len(own)} jobs that are not over, and may have {most};"
                    " wait for some of them, or submit them as tasks of one job (--array)"
                )
            tasks = sum(own.values()) + sum(jobs.values())
            if user != self._own and tasks > TASKS_MAX:
                raise LimitError(
                    f"user {user!r} would have {tasks} tasks in jobs that are not over, and may"
                    f" have {TASKS_MAX}; let each task do more"
                )
            own.update(jobs)

    def free(self, user: str | None, jobs: Sequence[str]) -> None:
        """Count jobs no more: they are over, or were not accepted."""
        with self._lock:
            own = self._of(user)
            for job in jobs:
                own.pop(job, None)

    def _of(self, user: str | None) -> dict[str, int]:
        if user is None or user == self._own:
            return {}  # They are not counted.
        return self._tasks.setdefault(user, {})
