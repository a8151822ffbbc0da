"""A server with recorded answers on a unix socket, for the commands that ask one."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from slotwise.service.wire import frame

JOB = {
    "kind": "command",
    "user": "ann",
    "pool": "team",
    "priority": "normal",
    "weight": 1.0,
    "state": "running",
    "reason": None,
    "submitted": 1.7e9,
    "begun": 1.7e9 + 60,
    "ended": None,
    "deadline": None,
    "tasks": 1,
    "tasks_done": 0,
    "tasks_running": 1,
    "tasks_failed": 0,
    "name": "sleep 9",
    "output": None,
    "after": [],
    "code": None,
    "restarts": 0,
    "held": False,
    "stream": None,
    "slots": 1,
}

SERVER = {
    "version": "0.1.0",
    "api": 1,
    "pid": 7,
    "user": "ann",
    "started": 1.7e9,
    "state": "running",
    "scheduler": "flex",
    "objective": "response",
    "slots": 4,
    "busy": 1,
    "jobs": {"queued": 2, "waiting": 0, "held": 0, "running": 1},
    "folder": "/state",
    "config": None,
}

POOL = {
    **{"name": "team", "weight": 2.66666, "slots_min": {}, "slots_max": {"task": 3}},
    **{"running": 1, "queued": 2, "held": 3},
    "resources": {"memory": {"total": 2 << 30, "used": 1 << 30}},
}

WORKER = {
    **{"host": "h1", "slots": 4, "busy": 1, "state": "alive"},
    "resources": {"gpu": {"total": 2, "used": 1}},
}


class FakeService:
    """The jobs by id, what was asked, and frames of output by job."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.jobs: dict[str, dict[str, Any]] = {}
        self.output: dict[str, list[tuple[dict[str, Any], bytes]]] = {}
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    @property
    def url(self) -> str:
        """The URL of the socket."""
        return f"unix:{self.path}"

    def add(self, job: str, **changes: Any) -> None:
        """Add a job."""
        self.jobs[job] = {**JOB, "id": job, "number": len(self.jobs) + 1, **changes}

    def answer(self, path: str, query: dict[str, str], body: dict[str, Any]) -> Any:
        """What is answered to a request; LookupError for an unknown job."""
        fixed = {
            "/v1": SERVER,
            "/v1/pools": {"pools": [POOL]},
            "/v1/workers": {"workers": [WORKER]},
        }
        if path in fixed:
            return fixed[path]
        if path == "/v1/jobs" and body:
            return {"jobs": [self._accepted(entry) for entry in body["jobs"]]}
        if path == "/v1/jobs":
            states = query["state"].split(",") if "state" in query else None
            found = [job for job in self.jobs.values() if not states or job["state"] in states]
            return {"jobs": found[-int(query["limit"]) :], "more": False}
        name, _, what = path.removeprefix("/v1/jobs/").partition("/")
        job = self.jobs[unquote(name)]
        if what == "explain":
            return {"text": f"job {job['id']} waits: \x1b[31mno slot"}
        job.update({"cancel": {"state": "cancelled"}, "hold": {"state": "held"}}.get(what, {}))
        job.update(body if what == "change" else {})
        return job

    def _accepted(self, entry: dict[str, Any]) -> dict[str, Any]:
        job = entry.get("id") or str(len(self.jobs) + 1)
        self.add(job, state="done" if entry["command"] == ["true"] else "queued")
        return {"id": job, "number": self.jobs[job]["number"], "state": "queued"}


class Handler(BaseHTTPRequestHandler):
    """Answers a request by the server's `service`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request without a body."""
        self._answer({})

    def do_POST(self) -> None:
        """Answer a request with JSON."""
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: dict[str, Any]) -> None:
        service: FakeService = self.server.service  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        service.asked.append((url.path, query, body))
        try:
            if url.path.endswith("/logs"):
                frames = service.output[unquote(url.path.split("/")[3])]
                data = b"".join(frame(header, [part]) for header, part in frames)
                self._send(200, data)
                return
            found = service.answer(url.path, query, body)
        except LookupError as error:
            refused = {"error": {"kind": "missing", "message": f"no job {error}"}}
            self._send(404, json.dumps(refused).encode())
            return
        self._send(200, json.dumps(found).encode())

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        """The other side has no address."""
        return "client"

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class _Server(ThreadingUnixStreamServer):
    """A command may end before it has read its answer."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a connection that has ended."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def fake_service(path: Path) -> Iterator[FakeService]:
    """A server at this path until the end of the block."""
    service = FakeService(path)
    with _Server(str(path), Handler) as server:
        server.service = service  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
