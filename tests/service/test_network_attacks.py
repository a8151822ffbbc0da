"""Requests from a network that no client should make: nothing gets in, others are served."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from uvicorn.server import ServerState

from service.asgi import Answer
from service.teams import CONFIG, Team, running_team
from slotwise.service.clients.transport import ServerRefusedError, job_path
from slotwise.service.http import listening
from slotwise.service.http.listening import NetworkListener
from slotwise.service.http.server import JSON_BYTES_MAX
from slotwise.service.settings import NetworkSettings
from slotwise.service.users.limits import OPEN_MAX, WRONG_AT_ONCE
from slotwise.service.wire import frame
from waiting import PATIENCE, until

QUICK_SECONDS = 10.0
"""What others wait for at most while a server is attacked, on a machine that is busy."""

FLOOD = 2_000
"""The jobs that one user of these tests may have."""

ROUTES = [
    ("GET", "/v1"),
    ("GET", "/v1/jobs"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/what-if"),
    ("POST", "/v1/objects"),
    ("POST", "/v1/calls"),
    ("POST", "/v1/results"),
    ("GET", "/v1/pools"),
    ("GET", "/v1/workers"),
    ("POST", "/v1/reload"),
    ("POST", "/v1/stop"),
    ("GET", "/v1/jobs/1"),
    ("GET", "/v1/jobs/1/wait"),
    ("GET", "/v1/jobs/1/explain"),
    ("GET", "/v1/jobs/1/logs"),
    ("POST", "/v1/jobs/1/cancel"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("POST", "/v1/tokens/1/revoke"),
    ("POST", "/v1/codes"),
    ("GET", "/v1/whoami"),
    ("GET", "/v1/unknown"),
    ("GET", "/metrics"),
]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A server with users; mallory attacks it."""
    config = CONFIG + f'[service.users.mallory]\naccount = "nobody"\njobs_max = {FLOOD}\n'
    with running_team(tmp_path_factory.mktemp("attacked"), config) as found:
        for user in ("ann", "bob", "ada", "mallory"):
            found.token(user)
        yield found


@pytest.fixture(autouse=True)
def _others_are_served(team: Team) -> Iterator[None]:
    """After each test, a job of another user runs, and the server is the one it was."""
    yield
    began = time.monotonic()
    (job,) = team.submit("ann", {"command": "true", "pool": "vision"})
    assert team.transport("ann").get(job_path(job, "wait"), timeout=60)["state"] == "done"
    assert time.monotonic() - began < QUICK_SECONDS
    assert team.server.process is not None
    assert team.server.process.poll() is None


def test_nothing_is_answered_without_a_token(team: Team) -> None:
    """Nor with a wrong one, with one of another form, or with a cookie that nobody has set."""
    _, id, secret = team.token("ada").split("_", 2)
    wrong = [
        {},
        {"Authorization": "Bearer slw_x_y"},
        {"Authorization": f"Bearer slw_{id}_{secret[:-1]}"},
        {"Authorization": f"Bearer {'A' * 8000}"},
        {"Authorization": f"Basic {team.token('ada')}"},
        {"Cookie": f"__Host-slotwise-{team.port}={team.token('ada')}"},
    ]
    for method, path in ROUTES:
        assert team.ask(method, path).status == 401
    for headers in wrong:
        answer = team.ask("GET", "/v1/jobs", headers)
        assert answer.status in (401, 429)
        assert answer.json.keys() == {"error"}
    assert team.server.get("/v1")["state"] == "running"


def test_who_tries_tokens_must_wait_and_others_need_not(team: Team) -> None:
    """Also those at the same address."""
    wrong = {"Authorization": "Bearer slw_1_x"}
    refused_of(lambda: team.ask("GET", "/v1/jobs", wrong))
    header, body = {"X-Slotwise": "1"}, {"token": "slw_1_x"}
    login = refused_of(lambda: team.ask("POST", "/v1/login", header, body))
    assert login.json["error"]["kind"] == "busy"
    assert int(login.headers["retry-after"]) > 0
    assert team.transport("bob").get("/v1/whoami")["user"] == "bob"
    right = team.ask("POST", "/v1/login", {"X-Slotwise": "1"}, {"token": team.token("bob")})
    assert right.status == 200


def refused_of(ask: Callable[[], Answer]) -> Answer:
    """The answer to the first try that must wait: the others get one for a wrong token.

    On a slow machine some may come as slowly as they may.
    """
    for _ in range(int(WRONG_AT_ONCE) + 10):
        answer = ask()
        if answer.status == 429:
            return answer
        assert answer.status == 401
    raise AssertionError("all were answered")


def test_other_sites_are_refused(team: Team) -> None:
    """By the name of the host, by the origin, and because they cannot send the header."""
    login = team.ask("POST", "/v1/login", {"X-Slotwise": "1"}, {"token": team.token("bob")})
    browser = {"Cookie": login.cookie}
    assert team.ask("GET", "/v1/jobs", browser).status == 200
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:443",
        "",
        "169.254.0.1",
    ):
        assert team.ask("GET", "/v1/jobs", {**browser, "Host": host}).status in (400, 403)
        assert team.ask("GET", "/", {"Host": host}).status in (400, 403)
    body = {"jobs": [{"command": "true"}]}
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{team.port}"):
        forged = {**browser, "X-Slotwise": "1", "Origin": origin}
        assert team.ask("POST", "/v1/jobs", forged, body).status == 403
    assert team.ask("POST", "/v1/jobs", browser, body).status == 403
    form = {**browser, "Content-Type": "application/x-www-form-urlencoded"}
    assert team.ask("POST", "/v1/jobs", form, b"jobs=").status == 403
    asked = team.ask("OPTIONS", "/v1/jobs", {"Origin": "https://evil.example"})
    assert asked.status == 403
    assert "access-control-allow-origin" not in asked.headers


def test_paths_lead_to_no_files(team: Team) -> None:
    """Whatever they are made of."""
    dots = ["../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd"]
    for start in ("/", "/page/", "/v1/jobs/", "/v1/tokens/"):
        for path in [*dots, "..\\..\\etc\\passwd", "%00", "//etc/passwd", ".%00./x", "%ff%fe"]:
            answer = team.ask("GET", f"{start}{path}", user="bob")
            assert answer.status in (404, 405)
            assert b"root:" not in answer.body
    for path in dots:
        assert team.ask("GET", f"/v1/jobs/{path}/logs", user="bob").status == 404


def test_bodies_that_are_not_what_was_expected(team: Team) -> None:
    """They are bad input, too large, or refused, never a failure of the server."""
    nested = b"[" * 200_000
    cases: list[tuple[str, bytes]] = [
        *(("/v1/jobs", body) for body in (b"", b"[]", b"{", nested, b"\xff", b"\0" * 1000)),
        *(("/v1/calls", body) for body in (b"\x05\0", b"\xff" * 100, frame({"sizes": [9]}))),
        ("/v1/objects", b""),
        ("/v1/results", b"{}"),
        ("/v1/tokens", b"[1]"),
        ("/v1/jobs", b'{"jobs": [{"command": "\\u0000"}]}'),
        ("/v1/jobs", b'{"jobs": [{"command": "true", "id": "\\u001b[2J"}]}'),
        ("/v1/jobs", b'{"jobs": [{"command": "true"}], "key": "ann\\u001fk"}'),
        ("/v1/calls", frame({"op": "open", "stream": "ann\x1fs"})),
        ("/v1/jobs", json.dumps({"jobs": [{"command": "true"}] * 10_001}).encode()),
    ]
    for path, body in cases:
        answer = team.ask("POST", path, {}, body, user="bob")
        assert answer.status in (400, 422), (path, body[:20], answer.body)
        assert answer.json["error"]["kind"] == "input"
    with closing(team.connect()) as connection:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: {1 << 40}\r\n"
        token = f"Authorization: Bearer {team.token('bob')}\r\n\r\n"
        connection.sendall((head + token).encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/results", "/v1/calls", "/v1/jobs/1/cancel"])
def test_json_that_takes_much_memory(team: Team, path: str) -> None:
    """An empty list takes three bytes of a body, and 25 times as much in the server."""
    lists = [[]] * (JSON_BYTES_MAX // 68)
    if path == "/v1/calls":
        body = frame({"op": "close", "stream": "s", "x": lists}) * 18
    else:
        body = json.dumps({"x": lists * 18}).encode()
    answer = team.ask("POST", path, {}, body, user="mallory")
    assert (answer.status, answer.json["error"]["kind"]) == (413, "large")


def test_a_user_who_waits_for_very_many_jobs(team: Team) -> None:
    """Its streams have more jobs to look up than the server has threads for; others ask on."""
    names = [f"no-job-{number}" for number in range(40_000)]
    body = json.dumps({"client": "c", "jobs": names}).encode()
    head = "POST /v1/results HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {len(body)}\r\nAuthorization: Bearer {team.token('mallory')}"
    with ExitStack() as streams:
        for _ in range(50):
            stream = streams.enter_context(closing(team.connect()))
            stream.sendall(head.encode() + b"\r\n\r\n" + body)
        began = time.monotonic()
        for _ in range(5):
            team.transport("bob").get("/v1/jobs", limit=10)
        assert time.monotonic() - began < QUICK_SECONDS


def test_what_is_not_http_is_not_answered(team: Team) -> None:
    """Neither before nor after TLS."""
    heads = [b"\0" * 1000, b"GET / HTTP/9\r\n\r\n", b"GET /\r\n\r\n", b"A" * 100_000]
    smuggled = (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n"
    )
    for head in [*heads, smuggled, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"]:
        with closing(team.connect()) as connection, suppress(OSError):
            connection.sendall(head)
            assert not connection.recv(1000).startswith(b"HTTP/1.1 2")
    for _ in range(20):
        plain = socket.create_connection(("127.0.0.1", team.port), 10)
        with closing(plain), suppress(OSError):
            plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/1.1 200" not in plain.recv(1000)


def test_connections_that_say_nothing(team: Team) -> None:
    """Hundreds of them, which have begun no TLS, or half a request."""
    with ExitStack() as opened:
        for number in range(300):
            with suppress(OSError):  # The server accepts so many of one address.
                if number % 10:
                    one = socket.create_connection(("127.0.0.1", team.port), 5)
                else:
                    one = team.connect()
                    one.sendall(b"GET /v1 HTTP/1.1\r\nHost: local")
                opened.enter_context(closing(one))
        assert team.server.get("/v1")["state"] == "running"


@pytest.mark.parametrize(
    ("user", "count"), [("max", 150), pytest.param("kim", 1000, marks=pytest.mark.slow)]
)
def test_hundreds_of_streams_of_one_user(team: Team, user: str, count: int) -> None:
    """It gets as many as it may have; others get theirs, and it gets more when some end.

    No stream of this user was open before, which the server could still be about to close.
    """
    own, began, kinds = team.transport(user), 0, set[str]()
    body = {"client": "c", "calls": {}, "jobs": []}
    with ExitStack() as opened:
        for number in range(count):
            stream = own.stream("/v1/results", {**body, "client": str(number)})
            opened.enter_context(closing(stream))
            try:
                next(stream)
                began += 1
            except ServerRefusedError as error:
                kinds.add(error.kind)
        assert (began, kinds) == (OPEN_MAX, {"busy"})
        assert team.transport("bob").get("/v1/whoami")["user"] == "bob"
        with closing(team.transport("bob").stream("/v1/results", body)) as other:
            assert "beat" in next(other)[0]

    def has_room() -> bool:
        with (
            closing(own.stream("/v1/results", body)) as again,
            suppress(ServerRefusedError),
        ):
            return "beat" in next(again)[0]
        return False

    until(has_room)


# A listener in this process, whose times are short.


@asynccontextmanager
async def listener(most: int = 100) -> AsyncIterator[NetworkListener]:
    """A listener without TLS, whose application takes a body and answers much."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/much":
            await JSONResponse({"much": "x" * (64 << 20)})(scope, receive, send)
        else:
            await JSONResponse({})(scope, receive, send)

    made = NetworkListener(NetworkSettings("127.0.0.1", 0))
    made.start(app, ServerState(), most)
    try:
        yield made
    finally:
        made.stop()


async def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, while the listener goes on."""
    ends = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes a connection, after what it has sent."""
    connection.settimeout(PATIENCE)
    with suppress(ConnectionResetError):
        while connection.recv(1 << 20):
            pass
    return True


HEAD = b"GET / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [HEAD],
        [HEAD + b"\r\n", HEAD],
        [HEAD.replace(b"GET", b"POST") + b"Content-Length: 100\r\n\r\n", b"x"],
    ],
)
def test_a_client_that_is_too_slow_is_left(
    sent: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a request, in its headers, in those of a second one, or in an unwanted body."""
    monkeypatch.setattr(listening, "HEADER_SECONDS", 0.3)

    def drip(port: int) -> bool:
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            for piece in sent:
                connection.sendall(piece)
                time.sleep(0.05)
            ends = time.monotonic() + PATIENCE
            while time.monotonic() < ends:  # It goes on to send, slowly.
                with suppress(OSError):
                    connection.sendall(b"X" if sent else b"")
                connection.settimeout(0.05)
                with suppress(TimeoutError, ConnectionResetError):
                    if not connection.recv(1000):
                        return True
                    continue
                if connection.fileno() < 0:
                    return True
            return False

    async def run() -> bool:
        async with listener() as made:
            return await asyncio.to_thread(drip, made.port)

    assert asyncio.run(run())


def test_a_client_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection ends, and with it what it was to be sent."""
    monkeypatch.setattr(listening, "UNREAD_SECONDS", 0.3)

    async def run() -> None:
        async with listener() as made:
            connection = socket.create_connection(("127.0.0.1", made.port))
            with closing(connection):
                connection.sendall(HEAD.replace(b"/", b"/much", 1) + b"\r\n")
                await wait_for(lambda: made.count)
                await wait_for(lambda: not made.count)

    asyncio.run(run())


def test_one_address_has_at_most_half_of_the_connections() -> None:
    """The others are closed at once, and there is room when some have ended."""

    async def run() -> None:
        async with listener(most=10) as made:
            opened = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(8)]
            await wait_for(lambda: made.count == 5)
            assert sum([await asyncio.to_thread(is_closed, one) for one in opened[5:]]) == 3
            for one in opened:
                one.close()
            await wait_for(lambda: not made.count)
            again = socket.create_connection(("127.0.0.1", made.port))
            again.sendall(HEAD + b"\r\n")
            answer = await asyncio.to_thread(again.recv, 1000)
            again.close()
            assert answer.startswith(b"HTTP/1.1 200")

    asyncio.run(run())


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Before the server listens."""
    from slotwise.core.errors import InputError
    from slotwise.service.http.listening import tls_context

    (tmp_path / "wrong.pem").write_text("no certificate")
    for name in ("wrong.pem", "missing.pem"):
        with pytest.raises(InputError, match=name):
            tls_context(NetworkSettings("127.0.0.1", 0, tmp_path / name))


def test_a_job_of_very_many_tasks(team: Team) -> None:
    """Each takes some bytes of the server: one short request could take all of its memory."""
    phases = [{"name": f"p{n}", "work": 1, "tasks": 10**6} for n in range(20)]
    with pytest.raises(ServerRefusedError, match="tasks") as caught:
        team.submit("bob", {"phases": phases, "pool": "dev"})
    assert caught.value.kind == "limit"
    for _ in range(2):  # A job that is over is not counted.
        (job,) = team.submit("bob", {"phases": phases[:6], "pool": "dev"}, hold=True)
        with pytest.raises(ServerRefusedError, match="tasks"):
            team.submit("bob", {"phases": phases[:6], "pool": "dev"}, hold=True)
        team.transport("bob").post(job_path(job, "cancel"))
        team.transport("bob").get(job_path(job, "wait"), timeout=60)


def test_a_user_with_very_many_jobs(team: Team) -> None:
    """Those of others run at once, requests are answered, and it gets no more than it may."""
    mallory = team.transport("mallory")
    entries = [{"command": "sleep 0.1", "pool": "dev"}] * 500
    latencies, is_over = list[float](), threading.Event()

    def ask() -> None:
        other = team.transport("bob")
        while not is_over.is_set():
            began = time.monotonic()
            other.get("/v1/jobs", limit=10)
            latencies.append(time.monotonic() - began)
            time.sleep(0.01)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for number in range(FLOOD // len(entries)):
            mallory.post("/v1/jobs", {"jobs": entries, "hold": number > 0})
        (job,) = team.submit("ann", {"command": "true", "pool": "vision"})
        began = time.monotonic()
        assert team.transport("ann").get(job_path(job, "wait"), timeout=60)["state"] == "done"
        assert time.monotonic() - began < QUICK_SECONDS
        with pytest.raises(ServerRefusedError) as caught:
            mallory.post("/v1/jobs", {"jobs": entries * 2, "hold": True})
        assert caught.value.kind == "limit"
    finally:
        is_over.set()
        asking.join()
    assert max(latencies) < QUICK_SECONDS


@pytest.mark.slow
def test_a_user_with_a_hundred_thousand_jobs(tmp_path: Path) -> None:
    """Other pools have their share all the time, also while the next server restores the jobs.

    The server stops in order, with all of them in its queue.
    """
    count, part = 100_000, 500
    config = CONFIG + f'[service.users.mallory]\naccount = "nobody"\njobs_max = {count}\n'
    with running_team(tmp_path, config) as team:
        entries, waits = [{"command": "sleep 0.1", "pool": "dev"}] * part, list[float]()

        def run_one() -> None:
            began = time.monotonic()
            (job,) = team.submit("ann", {"command": "true", "pool": "vision"})
            place = job_path(job, "wait")
            assert team.transport("ann").get(place, timeout=60)["state"] == "done"
            waits.append(time.monotonic() - began)

        team.token("ann")
        mallory = team.transport("mallory")
        for number in range(0, count - count // 100, part):  # Some may end and be replaced.
            mallory.post("/v1/jobs", {"jobs": entries})
            if number % (count // 10) == 0:
                run_one()
        with pytest.raises(ServerRefusedError) as caught:
            mallory.post("/v1/jobs", {"jobs": entries * (count // part // 10)})
        assert caught.value.kind == "limit"
        run_one()
        for number in (signal.SIGKILL, signal.SIGTERM):  # The second one while it restores.
            team.server.restart(number)
            team.find()
            run_one()
        assert max(waits) < QUICK_SECONDS, waits
