"""The guard before the routes: hosts, origins, tokens, codes, cookies and headers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.responses import JSONResponse

from service.asgi import Answer, asked
from slotwise.service.users import exchange
from slotwise.service.users.access import Role, User
from slotwise.service.users.exchange import Message, Receive, Scope, Send
from slotwise.service.users.guard import Guard, GuardRules, host_name
from slotwise.service.users.limits import HANDLED_MAX, OPEN_MAX, WRONG_AT_ONCE, RateLimit
from slotwise.service.users.logins import CODE_SECONDS, SESSION_SECONDS, SESSIONS_MAX, Logins

ANN = User("ann", "ann", {"a": Role.MANAGE})
TOKEN = {"authorization": "Bearer right"}
PAGE = {"x-slotwise": "1"}


async def whose(scope: Scope, receive: Receive, send: Send) -> None:
    """An application that says who asks."""
    user = scope["state"]["user"]
    await JSONResponse({"user": user and user.name})(scope, receive, send)


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


class Door:
    """A guard with the user ann and one token."""

    def __init__(self, **rules: object) -> None:
        self.clock, self.users = Clock(), {"ann": ANN}
        self.tokens = {"right": (ANN, "t1")}
        self.ended = set[str]()
        self.logins = Logins(self.users.get, self.clock, lambda id: id not in self.ended)
        stated = GuardRules(frozenset({"build.example.org"}), 8443, **rules)  # type: ignore[arg-type]
        self.guard = Guard(whose, stated, self.logins, user_of_token=self.tokens.get)

    def ask(self, method: str, target: str, *args: object, **options: object) -> Answer:
        """The answer to a request."""
        return asked(self.guard, method, target, *args, **options)  # type: ignore[arg-type]

    def logged_in(self) -> dict[str, str]:
        """The headers of a browser that has logged in."""
        return {"cookie": self.ask("POST", "/v1/login", PAGE, {"token": "right"}).cookie}


@pytest.fixture
def door() -> Door:
    """A guard on port 8443 without TLS."""
    return Door()


def test_a_token_says_who_asks(door: Door) -> None:
    """Nothing else but a cookie does, and public paths need neither."""
    assert door.ask("GET", "/v1/jobs", TOKEN).json == {"user": "ann"}
    assert door.ask("POST", "/v1/jobs", TOKEN).json == {"user": "ann"}
    assert door.ask("GET", "/").json == {"user": None}
    assert door.ask("GET", "/page/page.js").json == {"user": None}
    wrong = [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic right"}]
    for headers in [*wrong, {"authorization": ""}, {"cookie": "slotwise-8443=right"}]:
        answer = door.ask("GET", "/v1/jobs", headers)
        assert (answer.status, answer.json["error"]["kind"]) == (401, "unauthorized")
    assert door.ask("GET", "/pages").status == 401
    assert door.ask("GET", "/", {"authorization": "Bearer wrong"}).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8443", 200),
        ("[::1]:8443", 200),
        ("[0:0:0:0:0:0:0:1]", 200),
        ("BUILD.example.org.:8443", 200),
        ("evil.example.org", 403),
        ("build.example.org.evil.com", 403),
        ("localhost.evil.com", 403),
        ("192.0.2.1", 403),
        ("[::1", 200),
        ("[x]", 403),
        ("", 403),
        (None, 403),
    ],
)
def test_only_names_of_the_server_reach_it(door: Door, host: str | None, status: int) -> None:
    """A foreign name that leads to this address is how DNS is rebound."""
    assert door.ask("GET", "/v1/jobs", TOKEN, host=host).status == status
    assert door.ask("GET", "/", host=host).status == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8443", 200),
        ("http://localhost:3000", 403),
        ("http://evil.example.org", 403),
        ("null", 403),
        ("", 403),
        ("ftp://localhost:8443", 403),
    ],
)
def test_requests_of_other_sites_are_refused(door: Door, origin: str, status: int) -> None:
    """Of browsers, which always state the origin of such requests, also with a login."""
    cookie = door.logged_in()
    for headers in (TOKEN, cookie):
        answer = door.ask("POST", "/v1/jobs", {**headers, **PAGE, "origin": origin})
        assert answer.status == status


def test_a_browser_changes_something_only_from_the_page(door: Door) -> None:
    """A form or an image of another site cannot send the header."""
    cookie = door.logged_in()
    assert door.ask("GET", "/v1/jobs", cookie).json == {"user": "ann"}
    for method in ("POST", "PUT", "DELETE"):
        assert door.ask(method, "/v1/jobs", cookie).status == 403
    assert door.ask("POST", "/v1/jobs", {**cookie, "x-slotwise": "0"}).status == 403
    assert door.ask("POST", "/v1/jobs", {**cookie, **PAGE}).status == 200
    foreign = {**cookie, **PAGE, "sec-fetch-site": "cross-site"}
    assert door.ask("POST", "/v1/jobs", foreign).status == 403
    assert door.ask("POST", "/v1/login", {}, {"token": "right"}).status == 403


def test_a_login_lasts_until_it_is_ended(door: Door) -> None:
    """By the user, by time, with its token, or with the user."""
    one, two, three = door.logged_in(), door.logged_in(), door.logged_in()
    answer = door.ask("POST", "/v1/logout", {**one, **PAGE})
    assert 'slotwise-8443=""' in answer.headers["set-cookie"]
    assert door.ask("GET", "/v1/jobs", one).status == 401
    assert door.ask("GET", "/v1/jobs", two).status == 200
    door.clock.now += SESSION_SECONDS - 1
    assert door.ask("GET", "/v1/jobs", two).status == 200
    late = door.logged_in()
    door.clock.now += 1
    assert door.ask("GET", "/v1/jobs", three).status == 401
    assert door.ask("GET", "/v1/jobs", late).status == 200
    code = door.ask("POST", "/v1/codes", TOKEN).json["code"]
    door.ended.add("t1")
    assert door.ask("GET", "/v1/jobs", late).status == 401
    assert door.ask("GET", f"/login?code={code}").status == 401
    door.ended.clear()
    last = door.logged_in()
    door.users.clear()
    assert door.ask("GET", "/v1/jobs", last).status == 401


def test_a_code_logs_in_once(door: Door) -> None:
    """The browser that follows the link gets a cookie, and goes on to the page."""
    code = door.ask("POST", "/v1/codes", TOKEN).json
    answer = door.ask("GET", code["path"])
    assert (answer.status, answer.headers["refresh"]) == (200, "0; url=./")
    assert door.ask("GET", "/v1/whoami", {"cookie": answer.cookie}).json == {
        "user": "ann",
        "roles": {"a": "manage"},
        "admin": False,
    }
    again = door.ask("GET", code["path"])
    assert again.status == 401
    assert "set-cookie" not in again.headers
    late = door.ask("POST", "/v1/codes", TOKEN).json["code"]
    door.clock.now += CODE_SECONDS
    assert door.ask("GET", f"/login?code={late}").status == 401
    assert door.ask("GET", "/login").status == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_that_another_site_opens_asks_first(door: Door, site: str) -> None:
    """Nobody works as somebody else unnoticed; the link on the page that asks logs in."""
    code = door.ask("POST", "/v1/codes", TOKEN).json
    asking = door.ask("GET", code["path"], {"sec-fetch-site": site})
    assert (asking.status, "set-cookie" in asking.headers) == (200, False)
    assert "refresh" not in asking.headers
    assert f"'.{code['path']}'" in asking.body.decode()
    assert "<b>ann</b>" in asking.body.decode()
    answer = door.ask("GET", code["path"], {"sec-fetch-site": "same-origin"})
    assert door.ask("GET", "/v1/whoami", {"cookie": answer.cookie}).json["user"] == "ann"
    used = door.ask("GET", code["path"], {"sec-fetch-site": site})
    assert used.status == 401


def test_only_who_is_known_gets_a_code(door: Door) -> None:
    """Also with a cookie."""
    assert door.ask("POST", "/v1/codes").status == 401
    assert door.ask("POST", "/v1/codes", {**door.logged_in(), **PAGE}).status == 201


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"token": 5}', b'{"token": "wrong"}', b"[" * 4000, b" " * 5000]
)
def test_a_wrong_login_sets_no_cookie(door: Door, body: bytes) -> None:
    """Whatever it sends."""
    answer = door.ask("POST", "/v1/login", PAGE, body)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_the_cookie_is_for_this_server_only(door: Door) -> None:
    """Scripts do not see it, other sites do not send it, and with TLS it needs TLS."""
    answer = door.ask("POST", "/v1/login", PAGE, {"token": "right"})
    assert answer.cookie.startswith("slotwise-8443=")
    stated = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= set(stated.split("; "))
    assert "secure" not in stated
    safe = Door(is_secure=True).ask("POST", "/v1/login", PAGE, {"token": "right"})
    assert safe.cookie.startswith("__Host-slotwise-8443=")
    assert "; secure" in safe.headers["set-cookie"].lower()


def test_with_tls_the_page_is_not_that_without(door: Door) -> None:
    """A page of http://, which somebody between may have changed, is another site."""
    origin = {**TOKEN, "origin": "http://localhost:8443"}
    assert door.ask("POST", "/v1/jobs", origin).status == 200
    assert Door(is_secure=True).ask("POST", "/v1/jobs", origin).status == 403


def test_all_answers_tell_browsers_to_be_careful(door: Door) -> None:
    """Also those of errors."""
    for answer in (
        door.ask("GET", "/"),
        door.ask("GET", "/v1/jobs"),
        door.ask("GET", "/login"),
    ):
        assert "script-src" not in answer.headers["content-security-policy"]
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_a_user_has_at_most_so_many_sessions(door: Door) -> None:
    """The oldest ends, that of another user does not."""
    door.users["bob"] = User("bob", "bob")
    other, first = door.logins.begin("bob"), door.logins.begin("ann")
    for _ in range(SESSIONS_MAX):
        last = door.logins.begin("ann")
    assert door.logins.session(first) is None
    assert door.logins.session(last)
    assert door.logins.session(other)


def test_the_own_socket_needs_no_login() -> None:
    """Its user is the account of the server; it gets a code for a browser."""
    own = User("me", "me", {"*": Role.ADMIN})
    guard = Guard(whose, GuardRules(), Logins({"me": own}.get), own=own)
    assert asked(guard.from_own, "GET", "/v1/jobs", host=None).json == {"user": "me"}
    assert asked(guard.from_own, "GET", "/v1/whoami", host=None).json["admin"]
    path = asked(guard.from_own, "POST", "/v1/codes", host=None).json["path"]
    assert asked(guard, "GET", path).status == 200


def test_a_port_is_no_part_of_the_name() -> None:
    """Of names and of both kinds of addresses."""
    stated = ["a.b:1", "A.b.", "[2001:DB8::1]:1", "[2001:db8:0::1]", "[1"]
    assert [host_name(one) for one in stated] == [
        "a.b",
        "a.b",
        "2001:db8::1",
        "2001:db8::1",
        "",
    ]


# Limits, in one event loop.


class Open:
    """A request that is open: its body comes in pieces, and its answer is noted."""

    def __init__(
        self,
        guard: Guard,
        path: str,
        *pieces: bytes,
        token: str = "right",
        every: float = 0.0,
    ) -> None:
        self.left, self.answer, self.every = list(pieces), Answer(), every
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {token}".encode())]
        scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": headers,
            "client": ("192.0.2.7", 1),
            "state": {},
        }
        self.ended = asyncio.Event()
        self.task = asyncio.ensure_future(guard(scope, self.receive, self.send))

    async def receive(self) -> Message:
        """The next piece; after the last one it waits for the end."""
        if not self.left:
            await self.ended.wait()
            return {"type": "http.disconnect"}
        await asyncio.sleep(self.every)
        piece = self.left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": piece != b""}

    async def send(self, message: Message) -> None:
        """Note a part of the answer."""
        self.answer.status = message.get("status", self.answer.status)
        self.answer.body += message.get("body", b"")


class Waiting:
    """An application that reads bodies, and answers when it may."""

    def __init__(self) -> None:
        self.may_answer, self.now, self.most = asyncio.Event(), 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            while (await receive()).get("more_body"):
                pass
            await self.may_answer.wait()
        except Exception:  # As starlette, which then raises it again.
            await JSONResponse({"failed": True}, 500)(scope, receive, send)
            raise
        finally:
            self.now -= 1
        await JSONResponse({})(scope, receive, send)


def limited(run: Callable[[Guard, Waiting], Awaitable[None]]) -> None:
    """Run with a guard that knows the tokens of ann and bob."""

    async def main() -> None:
        app = Waiting()
        tokens = {"right": (ANN, "t1"), "other": (User("bob", "bob"), "t2")}
        rules = GuardRules(port=8443)
        await run(Guard(app, rules, Logins({}.get), user_of_token=tokens.get), app)

    asyncio.run(main())


async def wait_for(condition: Callable[[], object]) -> None:
    """Let tasks run until a condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not happen")


def test_a_user_has_so_many_open_requests() -> None:
    """One more is refused; another user is not, and there is room when one has ended."""

    async def run(guard: Guard, app: Waiting) -> None:
        opened = [Open(guard, "/v1/jobs/1/wait", b"") for _ in range(OPEN_MAX)]
        await wait_for(lambda: app.now == OPEN_MAX)
        refused = Open(guard, "/v1/jobs", b"")
        await refused.task
        assert refused.answer.status == 429
        assert refused.answer.json["error"]["kind"] == "busy"
        other = Open(guard, "/v1/jobs", b"", token="other")
        await wait_for(lambda: app.now == OPEN_MAX + 1)
        app.may_answer.set()
        await asyncio.gather(other.task, *(one.task for one in opened))
        again = Open(guard, "/v1/jobs", b"")
        await again.task
        assert {one.answer.status for one in (other, again, *opened)} == {200}

    limited(run)


def test_requests_of_a_user_are_handled_in_turn() -> None:
    """So that they do not take all threads; those of others have their own turns."""

    async def run(guard: Guard, app: Waiting) -> None:
        opened = [Open(guard, "/v1/jobs", b"") for _ in range(3 * HANDLED_MAX)]
        await wait_for(lambda: app.now == HANDLED_MAX)
        opened.append(Open(guard, "/v1/jobs", b"", token="other"))
        await wait_for(lambda: app.now == HANDLED_MAX + 1)
        app.may_answer.set()
        await asyncio.gather(*(one.task for one in opened))
        assert app.most == HANDLED_MAX + 1
        assert {one.answer.status for one in opened} == {200}

    limited(run)


def test_bodies_of_a_user_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the application answers to that; then there is room again."""
    monkeypatch.setattr(exchange, "BODY_BYTES_MAX", 100)

    async def run(guard: Guard, app: Waiting) -> None:
        first = Open(guard, "/v1/jobs", b"x" * 60, b"")
        await wait_for(lambda: not first.left)
        second = Open(guard, "/v1/jobs", b"x" * 30, b"x" * 30, b"")
        await second.task
        assert (second.answer.status, second.answer.json["error"]["kind"]) == (413, "large")
        other = Open(guard, "/v1/jobs", b"x" * 60, b"", token="other")
        app.may_answer.set()
        await asyncio.gather(first.task, other.task)
        third = Open(guard, "/v1/jobs", b"x" * 100, b"")
        await third.task
        assert {one.answer.status for one in (first, other, third)} == {200}

    limited(run)


def test_a_body_that_does_not_come_ends_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or one of which too little comes."""
    monkeypatch.setattr(exchange, "BODY_SECONDS", 0.05)

    async def run(guard: Guard, app: Waiting) -> None:
        nothing = Open(guard, "/v1/jobs", b"x")
        await nothing.task
        assert (nothing.answer.status, nothing.answer.json["error"]["kind"]) == (408, "slow")
        little = Open(guard, "/v1/jobs", *[b"x"] * 100, every=0.01)
        await little.task
        assert little.answer.status == 408

    limited(run)


def test_a_content_length_that_is_too_large_is_not_read(door: Door) -> None:
    """Nor are numbers that only Python takes for one a failure."""
    for length in (str(1 << 40), "9" * 10_000):
        headers = {**TOKEN, "content-length": length}
        assert door.ask("POST", "/v1/jobs", headers).status == 413
    assert door.ask("POST", "/v1/jobs", {**TOKEN, "content-length": "\xb2"}).status == 200


def test_requests_that_come_too_fast_are_told_to_wait(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of one user."""
    monkeypatch.setattr(door.guard, "_rates", RateLimit(0.001, 3.0))
    answers = [door.ask("GET", "/v1/jobs", TOKEN) for _ in range(4)]
    assert [one.status for one in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 100
    door.tokens["other"] = (User("bob", "bob"), "t2")
    assert door.ask("GET", "/v1/jobs", {"authorization": "Bearer other"}).status == 200


def test_what_is_refused_is_noted_but_not_without_end() -> None:
    """An address cannot fill the record with wrong tokens."""
    lines: list[tuple[object, ...]] = []

    def audit(*line: object, **about: object) -> None:
        lines.append(line)

    guard = Guard(whose, GuardRules(), Logins({}.get), audit=audit)
    for _ in range(int(WRONG_AT_ONCE) + 20):
        asked(guard, "GET", "/v1/jobs", {"authorization": "Bearer x"})
    assert lines[0] == (None, "192.0.2.7", "GET /v1/jobs", "refused")
    assert int(WRONG_AT_ONCE) <= len(lines) <= int(WRONG_AT_ONCE) + 2
    asked(guard, "GET", "/", host="evil.example", address="192.0.2.8")
    assert lines[-1] == (None, "192.0.2.8", "GET /", "forbidden")


@pytest.mark.parametrize(("status", "count"), [(404, WRONG_AT_ONCE), (201, WRONG_AT_ONCE + 20)])
def test_what_fails_is_noted_but_not_without_end(status: int, count: float) -> None:
    """A user cannot push older lines out of the record by requests that change nothing."""
    lines: list[tuple[object, ...]] = []

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({}, status)(scope, receive, send)

    def audit(*line: object, **about: object) -> None:
        lines.append(line)

    tokens = {"right": (ANN, "t1")}
    guard = Guard(answers, GuardRules(), Logins({}.get), user_of_token=tokens.get, audit=audit)
    for _ in range(int(WRONG_AT_ONCE) + 20):
        asked(guard, "POST", "/v1/jobs/no-job/hold", TOKEN)
    assert count <= len(lines) <= count + 2
