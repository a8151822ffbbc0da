"""Answers what a change would do: who may ask, how often, and what is shown of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slotwise.core.errors import InputError
from slotwise.service.engine.engine import Engine
from slotwise.service.engine.rights import LimitError
from slotwise.service.engine.submitting import JobSubmitter, Submission
from slotwise.service.settings import HELD
from slotwise.service.users.access import Role, User
from slotwise.service.users.limits import RateLimit
from slotwise.sessions.what_if import Asked, change_of, plain_answer

ASKED_PER_SECOND, ASKED_AT_ONCE = 0.2, 10.0
"""How often a user may ask in the long run, and how many times at once: an answer costs as much
processor time as two forecasts. The own account and administrators may always ask."""

TURN_SECONDS = 20.0
"""How long a question waits for those of others: one is answered at a time."""

PLACES = 4
"""How many questions are answered or wait: each holds one of the server's threads, of which all
other requests need some, too."""

OF_ADMINS = tuple(Asked._fields)
"""What only administrators may ask about."""


class WhatIfs:
    """Answers questions of users, from any thread."""

    def __init__(self, engine: Engine, submitter: JobSubmitter) -> None:
        self._engine, self._submitter = engine, submitter
        self._rate, self._turn = RateLimit(ASKED_PER_SECOND, ASKED_AT_ONCE), threading.Lock()
        self._places = threading.BoundedSemaphore(PLACES)

    def answer(self, given: Submission, stated: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of `WhatIf` for jobs that would be submitted, and for a change.

        ForbiddenError for a pool or a change that the user has no role for; LimitError if it
        asks too often, or others ask; InputError for what the server could not have.
        """
        core, user = self._engine.core, given.by
        asked = Asked(**{key: stated[key] for key in OF_ADMINS if stated.get(key)})
        if not asked.is_nothing:
            user.check(Role.ADMIN, "ask about other pools, schedulers or hosts")
        if HELD in asked.pools:
            raise InputError(f"pools: {HELD!r} has the jobs on hold, not a share; name another")
        self._count(user)
        with self._answering():
            jobs = self._submitter.planned(given) if given.jobs else []
            change = change_of(core, jobs, asked)
            found = self._engine.forecasts.what_if(change).moved(time.time() - core.now)
        plain = plain_answer(found, jobs)
        ids = [one["job"] for one in plain["jobs"]]
        records = {one.id: one for one in self._engine.store.jobs(ids=ids, limit=len(ids))}
        for row in plain["jobs"]:
            record = records.get(row["job"])
            row["user"], row["pool"] = (record.user, record.pool) if record else (None, None)
        return plain

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Have the turn. LimitError if too many wait for it, or others take too long."""
        busy = LimitError("others ask what would happen; ask again in some seconds")
        if not self._places.acquire(blocking=False):
            raise busy
        try:
            if not self._turn.acquire(timeout=TURN_SECONDS):
                raise busy
            try:
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _count(self, user: User) -> None:
        """LimitError if a user has asked too often."""
        if user.is_admin or user is self._engine.own:
            return
        if wait := self._rate.wait(user.name):
            raise LimitError(
                f"user {user.name!r} asks too often what would happen; wait {wait:.0f} s"
            )
