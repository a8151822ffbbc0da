"""Serves the status of the gate to clients, as JSON, and as a page of Dask's dashboard.

`holding.py` lists the parts of `distributed` that it uses. If one is missing, the gate works
without a page.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, TypeVar

from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from slotwise.core.errors import InputError
from slotwise.core.pool_state import PoolState
from slotwise.core.resource_limits import ResourceLimit
from slotwise.core.state import State
from slotwise.dask.computations import Computations, Key
from slotwise.dask.status import GateStatus

logger = logging.getLogger("slotwise.dask")

OPERATION = "slotwise_status"
PAGE = "slotwise"


def status(client: Any) -> Any:
    """The `GateStatus` of a client's cluster: pools, computations, and why these wait.

    It prints as a table, also in notebooks. For an asynchronous client, await the result.
    InputError if the scheduler has no gate.
    """
    return client.sync(_ask, client)


async def _ask(client: Any) -> GateStatus:
    # Without a handler, Dask would log a traceback in the scheduler.
    is_served = await client.scheduler.events(topic=OPERATION)
    plain = await getattr(client.scheduler, OPERATION)() if is_served else None
    if not isinstance(plain, dict):
        raise InputError("this scheduler has no gate; call slotwise.dask.install(client)")
    return GateStatus.of_plain(plain)


def serve(scheduler: Any) -> None:
    """Serve the status of the gate that the scheduler has at the time of a request."""
    if OPERATION in scheduler.handlers:
        return  # By an earlier gate.

    def handle() -> dict[str, Any] | None:
        gate = scheduler.plugins.get("slotwise")
        return None if gate is None else gate.status().to_plain()

    scheduler.handlers[OPERATION] = handle
    scheduler.log_event(OPERATION, "served")
    try:
        hide_limited(scheduler, lambda: scheduler.plugins.get("slotwise"))
    except Exception:
        logger.warning("an adaptive cluster grows for all held tasks", exc_info=True)
    try:
        _add_pages(scheduler)
    except Exception:
        logger.warning("the gate has no page in the dashboard", exc_info=True)


def _add_pages(scheduler: Any) -> None:
    """Add the JSON, and the page if the scheduler has a dashboard with bokeh."""
    http = scheduler.http_application
    dashboards = [one for one in http.applications if hasattr(one, "app_paths")]
    prefix = dashboards[0].prefix if dashboards else ""
    http.add_handlers(".*", [(f"{prefix}/{PAGE}.json", StatusJSON, {"scheduler": scheduler})])
    if not dashboards:
        return
    import distributed.dashboard.core
    from distributed.dashboard.scheduler import template_variables

    from slotwise.dask.dashboard import PAGES

    variables = template_variables(scheduler)  # The same lists as in all pages: a menu.
    variables["pages"].append(PAGE)
    variables["plots"].append({"url": f"individual-{PAGE}", "name": "Slotwise Pools"})
    make: Any = distributed.dashboard.core.BokehApplication
    application = make(PAGES, scheduler, prefix, variables)
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()


class StatusJSON(RequestHandler):
    """The status of the gate as JSON; 404 without a gate."""

    def initialize(self, scheduler: Any) -> None:
        """Keep the scheduler of a request; called by tornado."""
        self._scheduler = scheduler

    def get(self) -> None:
        """Answer a request."""
        gate = self._scheduler.plugins.get("slotwise")
        if gate is None:
            self.send_error(404, reason="this scheduler has no gate")
        else:
            self.write(gate.status().to_plain())


M = TypeVar("M", bound=Callable[..., None])


def fails_open(method: M) -> M:
    """Open the gate after an error in a method: Dask then continues as without it."""

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> None:
        if self.is_open:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            logger.exception("the gate has failed; all tasks run as without it")
            self.open()

    return guarded  # type: ignore[return-value]


# Adaptive clusters grow only for the tasks that pools let begin on more workers.

TARGET = "adaptive_target"


def hide_limited(scheduler: Any, gate: Callable[[], Any]) -> None:
    """Exclude the tasks that pools hold at their limits from Dask's `adaptive_target`.

    `gate` returns the gate of the scheduler, or None. The function is wrapped for direct calls,
    and for calls by the scheduler's handlers as in `cluster.adapt`.
    """
    target = scheduler.adaptive_target

    def wrapped(target_duration: Any = None) -> int:
        one = gate()
        if one is None or one.is_open:
            return int(target(target_duration))
        waiting = scheduler.unrunnable
        scheduler.unrunnable = one.demanded(waiting)
        try:
            return int(target(target_duration))
        finally:
            scheduler.unrunnable = waiting

    scheduler.adaptive_target = scheduler.handlers[TARGET] = wrapped


class Demanded:
    """The tasks without a worker in Dask, less those that another worker could not begin.

    Those are runnable tasks of jobs that wait for admission, and of pools beyond their max
    shares. Its creation costs O(jobs); an iteration, O(tasks) at worst.

    parked  the runnable tasks that wait for certain workers
    """

    def __init__(
        self, waiting: Any, state: State, computations: Computations, parked: Iterable[Key]
    ) -> None:
        self._waiting, self._tasks = waiting, computations.tasks
        of_job = Counter(self._tasks[key].phase.job for key in parked if key in self._tasks)
        self._allowed: dict[str, int] = {}
        self._hidden = 0
        outside = frozenset(state.awaiting_admission)
        taken = Counter[PoolState | ResourceLimit]()
        for job, computation in computations.alive.items():
            frontier = computation.frontier
            runnable = frontier.offered + frontier.deferred + of_job[job]
            may_begin = 0 if job in outside else runnable
            for phase in state.phases_of(job)[:1]:
                for limit in phase.limits:
                    room = limit.slots_for(phase, taken[limit])
                    may_begin = int(min(may_begin, max(0, room)))
                for limit in phase.limits:
                    taken[limit] += may_begin * limit.taken_by(phase)
            if may_begin < runnable:
                self._allowed[job] = may_begin
                self._hidden += runnable - may_begin

    def __len__(self) -> int:
        return max(0, len(self._waiting) - self._hidden)

    def __iter__(self) -> Iterator[Any]:
        left = self._allowed.copy()
        for one in self._waiting:
            task = self._tasks.get(one.key)
            job = "" if task is None else task.phase.job
            if job in left:
                left[job] -= 1
                if left[job] < 0:
                    continue
            yield one

    keys = __iter__
