"""The path of a call through the package to its worker is short."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from slotwise import Session
from slotwise.backends.inbox import Inbox
from slotwise.backends.local.process import WorkerProcess
from slotwise.sessions.calls import OpenCalls

MAX_CLASSES = 7


def classes_on_stack(frame: FrameType | None) -> list[str]:
    """The classes of this package whose methods are on the stack, the outermost first."""
    found: dict[str, None] = {}
    while frame is not None:
        of = type(frame.f_locals.get("self"))
        if of.__module__.startswith("slotwise."):
            found[of.__name__] = None
        frame = frame.f_back
    return list(found)[::-1]


def test_a_call_crosses_few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most seven, by the stacks where it enters the inbox and the pipe of its worker."""
    paths: dict[str, list[str]] = {}

    def noted(
        where: str, method: Callable[..., Any], *, is_of_call: bool
    ) -> Callable[..., Any]:
        def call(self: Any, *args: Any) -> Any:
            if is_of_call or isinstance(args[0], OpenCalls):
                paths[where] = [*classes_on_stack(sys._getframe(1)), type(self).__name__]
            return method(self, *args)

        return call

    with Session(1) as session:
        session.submit(abs, 0).result()  # Its worker knows the runner of calls.
        monkeypatch.setattr(Inbox, "put", noted("inbox", Inbox.put, is_of_call=False))
        send = noted("pipe", WorkerProcess.send, is_of_call=True)
        monkeypatch.setattr(WorkerProcess, "send", send)
        assert session.submit(abs, -3).result() == 3
        monkeypatch.undo()
    assert paths["inbox"][-1] == "Inbox", paths
    assert paths["pipe"][0] == "LoopThread", "it runs the loop; calls do not pass through it"
    crossed = dict.fromkeys([*paths["inbox"], *paths["pipe"][1:]])
    assert len(crossed) <= MAX_CLASSES, crossed
