"""How a scheduler shows its gate: to clients, as JSON, and as a page of Dask's dashboard.

`holding.py` lists what is used of `distributed` for that. If a part of it is missing, the gate
works without a page.
"""

from __future__ import annotations

import logging
from typing import Any

from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from slotwise.dask.adapting import hide_limited
from slotwise.dask.status import GateStatus
from slotwise.model.errors import InputError

logger = logging.getLogger("slotwise.dask")

OPERATION = "slotwise_status"
PAGE = "slotwise"


def status(client: Any) -> Any:
    """The `GateStatus` of a client's cluster: pools, computations, why these wait.

    Its `str` is a table. For an asynchronous client it is to be awaited. InputError if the
    scheduler has no gate.
    """
    return client.sync(_ask, client)


async def _ask(client: Any) -> GateStatus:
    plain = await getattr(client.scheduler, OPERATION)()
    if not isinstance(plain, dict):
        raise InputError("this scheduler has no gate; call slotwise.dask.install(client)")
    return GateStatus.of_plain(plain)


def serve(scheduler: Any) -> None:
    """Show the gate of a scheduler, whichever it has at the time of a question."""
    if OPERATION in scheduler.handlers:
        return  # An earlier gate has done it.

    def handle() -> dict[str, Any] | None:
        gate = scheduler.plugins.get("slotwise")
        return None if gate is None else gate.status().to_plain()

    scheduler.handlers[OPERATION] = handle
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
        """Remember the scheduler."""
        self._scheduler = scheduler

    def get(self) -> None:
        """Answer."""
        gate = self._scheduler.plugins.get("slotwise")
        if gate is None:
            self.send_error(404, reason="this scheduler has no gate")
        else:
            self.write(gate.status().to_plain())
