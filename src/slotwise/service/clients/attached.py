"""The results of jobs of a server that another program, or an earlier one, has submitted."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from slotwise.backends.local.call_stream import CallResult
from slotwise.core.errors import SlotwiseError
from slotwise.service.clients.remote import RemoteCore
from slotwise.service.clients.shown import OVER
from slotwise.service.clients.transport import job_path
from slotwise.sessions.futures import Future, PackedError

OF_CALLS = ("done", "failed")
"""The states of a job of calls that are all over."""


def attach(core: RemoteCore, future: Future[Any], job: Mapping[str, Any]) -> None:
    """Settle the future of a job at its end; `job` is what the server knows of it now."""
    core.attached.add(future)
    future.add_done_callback(core.attached.discard)
    key = job.get("stream")
    if key and job["state"] in OF_CALLS:
        _take_calls(core, future, key, int(job["tasks"]))
        return

    def received(header: Mapping[str, Any], parts: list[bytes]) -> None:
        if header.get("job") != future.job or header["state"] not in OVER:
            return
        if key and header["state"] in OF_CALLS:
            now = core.outbox.repeated(lambda: core.transport.get(job_path(future.job)))
            _take_calls(core, future, key, int(now["tasks"]))
            is_taken.append(True)
        else:
            core.settle_job(future, header, parts)

    if job["state"] == "running":
        future._start()
    is_taken: list[bool] = []
    body = {"client": uuid.uuid4().hex, "calls": {}, "jobs": [future.job]}
    core.receives(lambda: body, received, lambda: bool(is_taken) or future.done())


def _take_calls(core: RemoteCore, future: Future[Any], key: str, count: int) -> None:
    """Get the results of the calls of a job that is over.

    The future has the first exception, if there is one.
    """
    results: dict[int, CallResult] = {}

    def received(header: Mapping[str, Any], parts: list[bytes]) -> None:
        if header.get("stream") != key:
            return
        if header["state"] == "value":
            results[header["number"]] = CallResult(True, parts[0])
        elif header["state"] == "raised":
            future._fail(PackedError(CallResult(False, parts[0])))
        elif header["state"] == "cancelled":
            future.cancel()
        else:
            future._fail(SlotwiseError(str(header.get("reason") or "the call failed")))
        if len(results) == count:
            if count == 1:
                future._settle(results[0])
            else:
                future._finish([results[number].value() for number in range(count)])

    body = {"client": uuid.uuid4().hex, "calls": {key: list(range(count))}, "jobs": []}
    core.receives(lambda: body, received, lambda: future.done())
