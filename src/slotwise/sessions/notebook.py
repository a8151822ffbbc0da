"""A session in a notebook: its live display, and cells whose interrupt cancels their jobs."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from typing import Any

from slotwise.insight.report.notebook import Show

REDRAW_SECONDS = 0.5
"""Seconds between two checks whether the display of a session has changed."""


class NotebookCells:
    """The futures that were created while the current cell of a notebook runs.

    If the cell is interrupted, those that are not done are cancelled. The cell then ends with
    CancelledError of asyncio if it awaits, otherwise with KeyboardInterrupt.
    """

    def __init__(self, shell: Any) -> None:
        """`shell` is the shell of IPython, in which a cell already runs."""
        self._shell, self._events = shell, shell.events
        self._session: Callable[[], object] = lambda: None
        self._created: weakref.WeakSet[futures.Future[Any]] | None = weakref.WeakSet()
        self._handlers = {"pre_run_cell": self._begin, "post_run_cell": self._end}
        for name, handler in self._handlers.items():
            self._events.register(name, handler)

    def add(self, future: futures.Future[Any]) -> None:
        """Record a new future; may be called from any thread."""
        if (created := self._created) is not None:
            created.add(future)

    def watch(self, session: object) -> None:
        """Do not let the outputs of cells keep a session alive that a variable refers to."""
        self._session = weakref.ref(session)

    def close(self) -> None:
        """Unregister the handlers of cells. Idempotent."""
        for name, handler in self._handlers.items():
            with suppress(ValueError):
                self._events.unregister(name, handler)

    def _begin(self, info: Any = None) -> None:
        self._created = weakref.WeakSet()

    def _end(self, result: Any = None) -> None:
        from asyncio import CancelledError  # Slow to import; IPython has done so.

        created, self._created = self._created, None
        error = getattr(result, "error_in_exec", None)
        if isinstance(error, KeyboardInterrupt | CancelledError):
            # Pending ones first, so that none of them starts meanwhile.
            for future in sorted(created or (), key=lambda future: future.running()):
                future.cancel()
        forget_output(self._shell, self._session())


def forget_output(shell: Any, value: object) -> None:
    """Let IPython forget an output that is also the value of a variable of the user.

    Otherwise its lists of outputs would keep each session alive that a cell has shown, also
    when the cell is run again.
    """
    names: dict[str, Any] = getattr(shell, "user_ns", {})
    found = [name for name, known in list(names.items()) if known is value]
    if value is None or all(name.startswith("_") for name in found):
        return
    for known in (names, getattr(shell, "user_ns_hidden", {})):
        for name in [name for name in known if name.startswith("_") and known[name] is value]:
            known[name] = ""
    outputs = names.get("_oh", {})
    for number in [number for number, known in outputs.items() if known is value]:
        del outputs[number]
    for name in ("_", "__", "___"):
        if getattr(shell.displayhook, name, None) is value:
            setattr(shell.displayhook, name, "")


def cells_of_notebook() -> NotebookCells | None:
    """The cells of the IPython shell; None if this process does not run IPython."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if hasattr(ipython, "get_ipython") else None
    return None if getattr(shell, "events", None) is None else NotebookCells(shell)


class LiveDisplay:
    """Shows HTML in a cell, and updates it when it has changed, until it is closed."""

    def __init__(self, show: Show, html: Callable[[], str], turns: Callable[[], int]) -> None:
        """`turns` is cheap, and returns another number when `html` may have changed."""
        self._show, self._html, self._turns = show, html, turns
        self._drawn = turns()
        show(html())
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="slotwise display")
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Show the final state, and stop updating. Idempotent."""
        if not self._is_closed.is_set():
            self._is_closed.set()
            self._thread.join()
            self._show(self._html())

    def _redraw(self) -> None:
        while not self._is_closed.wait(REDRAW_SECONDS):
            turns = self._turns()
            if turns != self._drawn:
                self._drawn = turns
                self._show(self._html())
