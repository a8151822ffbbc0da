"""What stands before the routes of a server: who asks, and from where.

It wraps an ASGI application, and sets `request.state.user`. Of requests from a network it
checks the names of hosts, so that no other site reaches the server through the browser of a
user (DNS rebinding); the origin, and a header that only the page itself can send (CSRF); then a
token, or the cookie of the page. It answers logins by itself.
"""

from __future__ import annotations

import html
import ipaddress
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, Response

from slotwise.service.answers import PlainResponse, refusal
from slotwise.service.users.access import User
from slotwise.service.users.exchange import (
    App,
    Exchange,
    Message,
    Receive,
    Scope,
    Send,
    too_large,
)
from slotwise.service.users.limits import (
    BODY_BYTES_MAX,
    OPEN_MAX,
    REQUESTS_AT_ONCE,
    REQUESTS_PER_SECOND,
    WRONG_AT_ONCE,
    WRONG_PER_SECOND,
    RateLimit,
    UserLoad,
    group_of,
)
from slotwise.service.users.logins import SESSION_SECONDS, Login, Logins

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names of the own machine, which a browser never sends for a foreign site."""

SAFE = ("GET", "HEAD", "OPTIONS")
"""The methods that change nothing."""

DIGITS_MAX = 18
"""The most digits of the length of a body."""

LOGIN_BYTES_MAX = 4096
"""The longest body of a login."""

ENTER = "<!doctype html><title>slotwise</title><p><a href='./'>Continue</a></p>"
"""The answer to a login by a code. The browser follows by itself, and as if from this server: a
redirect of another site's link would come without the cookie."""

EXPIRED = (
    "<!doctype html><title>slotwise</title><p>This link has been used, or is too old."
    " <code>slotwise page</code> prints a new one.</p><p><a href='./'>Continue</a></p>"
)


CONFIRM = (
    "<!doctype html><title>slotwise</title><p>Another site has opened this link, which logs"
    " this browser in as <b>{user}</b>.</p><p>Only if that is you:"
    " <a href='./login?code={code}'>log in</a></p>"
)
"""The answer to a link that another site has opened: it could be the attacker's own, so that a
user would submit work as the attacker."""


@dataclass(frozen=True, slots=True)
class GuardRules:
    """How a server is reached from a network.

    hosts      the names by which clients reach it, besides those of the own machine
    port       the port where it listens; cookies of servers on one host differ by it
    is_secure  whether by TLS
    public     paths that need no login; those that end in "/" stand for all below
    url        the beginning of its URLs, for links; empty if it has none
    """

    hosts: frozenset[str] = frozenset()
    port: int = 0
    is_secure: bool = False
    public: tuple[str, ...] = ("/", "/page/", "/health", "/ready")
    url: str = ""

    @property
    def cookie(self) -> str:
        """The name of the cookie."""
        return f"{'__Host-' if self.is_secure else ''}slotwise-{self.port}"

    def is_public(self, path: str) -> bool:
        """Whether a path needs no login."""
        return any(
            path == one or (one != "/" and one.endswith("/") and path.startswith(one))
            for one in self.public
        )

    def is_host(self, stated: str) -> bool:
        """Whether a header `Host` names this server."""
        name = host_name(stated)
        return name in LOOPBACK or name in self.hosts

    def is_origin(self, stated: str, host: str) -> bool:
        """Whether a header `Origin` is that of the page of this server."""
        scheme, found, place = stated.partition("://")
        allowed = ("https",) if self.is_secure else ("http", "https")  # A proxy may have TLS.
        return bool(found) and scheme in allowed and place.lower() == host.lower()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: a user, by a token, a session of the page, or the socket of the own account."""

    user: User
    token: str | None = None
    session: str | None = None
    is_valid: Callable[[], bool] = lambda: True


def nobody(token: str) -> tuple[User, str] | None:
    """No token is known."""
    return None


def not_audited(
    user: str | None, address: str, action: str, outcome: str, **about: Any
) -> None:
    """Note nothing of a request."""


class Guard:
    """An ASGI application that lets requests of its users reach another one.

    user_of_token  the user and the id of a token that is valid
    own            the user of the socket of the server's own account
    audit          takes a line about each request that changes something, or is refused
    """

    def __init__(
        self,
        app: App,
        rules: GuardRules,
        logins: Logins,
        *,
        user_of_token: Callable[[str], tuple[User, str] | None] = nobody,
        own: User | None = None,
        audit: Callable[..., None] = not_audited,
    ) -> None:
        self._app, self.rules, self.logins = app, rules, logins
        self._user_of_token, self._own, self._audit = user_of_token, own, audit
        self._rates = RateLimit(REQUESTS_PER_SECOND, REQUESTS_AT_ONCE)
        self._refusals = RateLimit(WRONG_PER_SECOND, WRONG_AT_ONCE)
        self._loads: dict[str, UserLoad] = {}
        self.routes = {
            ("POST", "/v1/login"): self._login,
            ("GET", "/login"): self._enter,
            ("POST", "/v1/logout"): self._logout,
            ("GET", "/v1/whoami"): self._whoami,
            ("POST", "/v1/codes"): self._code,
        }

    async def from_own(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests by the unix socket: those of the server's own account."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        assert self._own is not None
        method, path, status = scope["method"], scope["path"], 200
        scope.setdefault("state", {}).update(user=self._own, token=None)
        if path in _OWN_PATHS and (handler := self.routes.get((method, path))):
            answer = await handler(scope, receive, Identity(self._own))
            await answer(scope, receive, send)
            return
        if method in SAFE or path in _OFTEN:
            await self._app(scope, receive, send)
        else:
            status = await _status_of(self._app, scope, receive, send)
        self._note(scope, status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Requests from a network."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        identity, answer = None, self._foreign(headers)
        if answer is None:
            identity = self._identity(headers)
            answer = self._refused(scope, headers, identity)
        user = None if identity is None else identity.user
        who = f"address {address_of(scope)}" if user is None else user.name
        load = self._loads.setdefault(who, UserLoad())
        exchange = Exchange(receive, send, load, identity.is_valid if identity else _always)
        token = None if identity is None else identity.token
        scope.setdefault("state", {}).update(user=user, token=token)
        if answer is not None:
            answer = self._wrong(scope, headers, answer)
        else:
            answer = self._too_much(headers, who, load)
        if answer is None:
            async with exchange.open(waits=scope["path"].endswith("/wait")):
                answer = await self._handled(scope, exchange, identity)
            answer = answer or exchange.refusal
        if not load.requests:
            self._loads.pop(who, None)
        if answer is not None and not exchange.status:
            await exchange.answer(scope, answer)
        if answer is None or answer.status_code < 400:
            self._note(scope, exchange.status)

    async def _handled(
        self, scope: Scope, exchange: Exchange, identity: Identity | None
    ) -> Response | None:
        """The answer of the guard itself; None if the application has answered."""
        handler = self.routes.get((scope["method"], scope["path"]))
        if handler is None:
            await self._app(scope, exchange.receive, exchange.send)
            return None
        answer = await handler(scope, exchange.receive, identity)
        return answer if answer.status_code < 400 else self._wrong(scope, {}, answer)

    def _wrong(self, scope: Scope, headers: dict[bytes, bytes], answer: Response) -> Response:
        """Note a refusal; an address with many wrong tokens gets another answer."""
        is_login = (scope["method"], scope["path"]) in _LOGINS
        if answer.status_code == 401 and b"authorization" not in headers and not is_login:
            return answer  # A browser that has not logged in.
        if seconds := self._refusals.wait(address_of(scope)):
            busy = _busy("too many wrong tokens; wait for a moment", seconds)
            return busy if answer.status_code == 401 else answer
        self._write(scope, answer.status_code, {})
        return answer

    def _note(self, scope: Scope, status: int) -> None:
        """Note what has changed something, and what the application has forbidden."""
        about = scope["state"].get("audited")
        is_quiet = scope["method"] in SAFE or (scope["path"] in _OFTEN and status < 400)
        if about is None and status != 403 and is_quiet:
            return
        user = scope["state"].get("user")
        who = address_of(scope) if user is None else f"user {user.name}"
        if status < 400 or not self._refusals.wait(who):  # What fails costs a user nothing.
            self._write(scope, status, about or {})

    def _write(self, scope: Scope, status: int, about: Mapping[str, Any]) -> None:
        user, action = scope["state"].get("user"), f"{scope['method']} {scope['path']}"
        outcome = _OUTCOMES.get(status, "done" if status < 400 else "failed")
        name = None if user is None else user.name
        self._audit(name, address_of(scope), action, outcome, status=status, **about)

    def _too_much(
        self, headers: dict[bytes, bytes], who: str, load: UserLoad
    ) -> Response | None:
        """Refuse what goes beyond the limits of a user, or of an address without one."""
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and (len(length) > DIGITS_MAX or int(length) > BODY_BYTES_MAX):
            return refusal(413, "large", too_large())
        seconds = self._rates.wait(who)
        if load.requests >= OPEN_MAX:
            return _busy(f"{OPEN_MAX} of your requests are open; close some first", 1.0)
        if seconds:
            return _busy("too many requests; wait for a moment", seconds)
        return None

    # Checks. None if a request passes.

    def _foreign(self, headers: dict[bytes, bytes]) -> Response | None:
        """Refuse requests that another site sends through the browser of a user."""
        host = headers.get(b"host", b"").decode("latin-1")
        if not self.rules.is_host(host):
            return refusal(
                403,
                "forbidden",
                f"host {host[:100]!r} is not a name of this server; its administrator adds it"
                " to `hosts` under [service] in slotwise.toml",
            )
        origin = headers.get(b"origin")
        if origin is not None and not self.rules.is_origin(origin.decode("latin-1"), host):
            return refusal(403, "forbidden", "requests of other sites are refused")
        return None

    def _identity(self, headers: dict[bytes, bytes]) -> Identity | None:
        """Who asks, by a token before a cookie."""
        if (stated := headers.get(b"authorization")) is not None:
            kind, _, token = stated.decode("latin-1").partition(" ")
            text = token.strip() if kind.lower() == "bearer" else ""
            found = self._user_of_token(text)
            known = lambda: self._user_of_token(text) is not None  # noqa: E731
            return None if found is None else Identity(*found, is_valid=known)
        secret = self._cookie(headers)
        session = None if secret is None else self.logins.session(secret)
        if secret is None or session is None:
            return None
        known = lambda: self.logins.session(secret) is not None  # noqa: E731
        return Identity(session[0], session[1].token, secret, known)

    def _cookie(self, headers: dict[bytes, bytes]) -> str | None:
        stated = headers.get(b"cookie")
        return (
            None
            if stated is None
            else cookie_parser(stated.decode("latin-1")).get(self.rules.cookie)
        )

    def _refused(
        self, scope: Scope, headers: dict[bytes, bytes], identity: Identity | None
    ) -> Response | None:
        """Refuse what needs a login, or what the page itself did not send."""
        method, path = scope["method"], scope["path"]
        is_login = (method, path) in _LOGINS
        has_token = b"authorization" in headers
        if identity is None and (has_token or not (is_login or self.rules.is_public(path))):
            text = "the token is unknown, revoked or too old" if has_token else "log in first"
            return refusal(
                401,
                "unauthorized",
                f"{text}; `slotwise login URL` stores a token, `slotwise page` prints a link",
                {"www-authenticate": "Bearer"},
            )
        is_browser = is_login or (identity is not None and identity.session is not None)
        if is_browser and method not in SAFE:
            is_own = headers.get(b"sec-fetch-site", b"same-origin") in (b"same-origin", b"none")
            if headers.get(b"x-slotwise") != b"1" or not is_own:
                return refusal(403, "forbidden", "the header `X-Slotwise: 1` is missing")
        return None

    # Routes.

    async def _login(
        self, scope: Scope, receive: Receive, identity: Identity | None
    ) -> Response:
        """Begin a session of a browser, by a token or a code."""
        body = await _short_body(receive)
        token, code = body.get("token"), body.get("code")
        login: Login | None = None
        if isinstance(token, str) and (found := self._user_of_token(token.strip())):
            login = Login(found[0].name, 0.0, found[1])
        elif isinstance(code, str):
            login = self.logins.login_by(code)
        if login is None:
            return refusal(401, "unauthorized", "the token is unknown, revoked or too old")
        return self._entered(scope, login, PlainResponse({"user": login.user}))

    async def _enter(
        self, scope: Scope, receive: Receive, identity: Identity | None
    ) -> Response:
        """Begin a session of a browser that has followed a link with a code."""
        code = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[0]
        site = dict(scope["headers"]).get(b"sec-fetch-site")
        is_foreign = site in (b"cross-site", b"same-site")
        login = self.logins.of_code(code) if is_foreign else self.logins.login_by(code)
        if login is None:
            return HTMLResponse(EXPIRED, 401)
        if is_foreign:
            user = html.escape(login.user)
            return HTMLResponse(CONFIRM.format(user=user, code=quote(code, safe="")))
        refresh = {"refresh": "0; url=./"}
        return self._entered(scope, login, HTMLResponse(ENTER, headers=refresh))

    def _entered(self, scope: Scope, login: Login, answer: Response) -> Response:
        scope["state"]["audited"] = {"login": login.user}
        secret = self.logins.begin(login.user, login.token)
        answer.set_cookie(
            self.rules.cookie,
            secret,
            max_age=int(SESSION_SECONDS),
            secure=self.rules.is_secure,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _logout(
        self, scope: Scope, receive: Receive, identity: Identity | None
    ) -> Response:
        if identity is not None and identity.session is not None:
            self.logins.end(identity.session)
        answer = PlainResponse({})
        answer.delete_cookie(
            self.rules.cookie, secure=self.rules.is_secure, httponly=True, samesite="strict"
        )
        return answer

    async def _whoami(
        self, scope: Scope, receive: Receive, identity: Identity | None
    ) -> Response:
        assert identity is not None
        return PlainResponse(identity.user.to_plain())

    async def _code(
        self, scope: Scope, receive: Receive, identity: Identity | None
    ) -> Response:
        """A one-time code with which a browser logs in as who asks."""
        assert identity is not None
        code = self.logins.new_code(identity.user.name, identity.token)
        path = f"/login?code={code}"
        url = f"{self.rules.url}{path}" if self.rules.url else None
        return PlainResponse({"code": code, "path": path, "url": url}, 201)


_LOGINS = {("POST", "/v1/login"), ("GET", "/login")}
_OWN_PATHS = {"/v1/whoami", "/v1/codes"}
_OFTEN = {"/v1/calls", "/v1/results"}  # Noted only if they open jobs.
_OUTCOMES = {401: "refused", 403: "forbidden", 408: "limited", 413: "limited", 429: "limited"}


def address_of(scope: Scope) -> str:
    """The address that a request comes from; empty for the unix socket."""
    client = scope.get("client")
    return group_of(client[0]) if client else ""


def _always() -> bool:
    return True


def _busy(message: str, seconds: float) -> Response:
    headers = {"retry-after": str(ceil(seconds))}
    return refusal(429, "busy", message, headers)


async def _status_of(app: App, scope: Scope, receive: Receive, send: Send) -> int:
    """Let an application answer; the status of the answer."""
    status = 0

    async def noted(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)
        await send(message)

    await app(scope, receive, noted)
    return status


def host_name(stated: str) -> str:
    """The name or address in a header `Host`, without the port."""
    name = stated.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
        try:
            return ipaddress.ip_address(name).compressed
        except ValueError:
            return ""
    return name.partition(":")[0].removesuffix(".")


async def _short_body(receive: Receive) -> dict[str, Any]:
    """A short body, as JSON; empty for anything else."""
    data, has_more = b"", True
    while has_more and len(data) <= LOGIN_BYTES_MAX:
        message = await receive()
        if message["type"] != "http.request":
            return {}
        data += message.get("body", b"")
        has_more = message.get("more_body", False)
    try:
        found = json.loads(data) if len(data) <= LOGIN_BYTES_MAX else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
