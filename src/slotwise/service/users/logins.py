"""Logins of the page: one-time codes, and sessions of browsers, which end with the server."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from slotwise.service.users.access import User

CODE_SECONDS = 300.0
"""How long a one-time code can be used."""

SESSION_SECONDS = 30 * 86400.0
"""How long a browser stays logged in."""

SESSIONS_MAX = 50
"""The most sessions of a user, and the most codes; the oldest ends for another one."""


def hashed(secret: str) -> bytes:
    """What is kept of a secret. It has 256 random bits, so that a fast hash suffices."""
    return sha256(secret.encode("utf-8", "replace")).digest()


@dataclass(frozen=True, slots=True)
class Login:
    """A code or a session of a user, until an instant; `token` is the id of its token."""

    user: str
    ends: float
    token: str | None = None


class Logins:
    """The codes and sessions of a server. For the thread of its event loop.

    user_of   the user with a name; None for one that the configuration no longer has
    clock     the seconds by which they end
    is_valid  whether the token with an id can still be used: what it began ends with it
    """

    def __init__(
        self,
        user_of: Callable[[str], User | None],
        clock: Callable[[], float] = time.monotonic,
        is_valid: Callable[[str], bool] = lambda token: True,
    ) -> None:
        self._user_of, self._clock, self._is_valid = user_of, clock, is_valid
        self._codes: dict[bytes, Login] = {}
        self._sessions: dict[bytes, Login] = {}

    def new_code(self, user: str, token: str | None = None) -> str:
        """A code by which one browser logs in as a user, within five minutes."""
        return self._new(self._codes, Login(user, self._clock() + CODE_SECONDS, token))

    def of_code(self, code: str) -> Login | None:
        """The login by a code, which is not used up; None as of `login_by`."""
        found = self._codes.get(hashed(code))
        return found if self._user(found) else None

    def login_by(self, code: str) -> Login | None:
        """Use a code up; None if it is unknown, used or too old."""
        found = self.of_code(code)
        self._codes.pop(hashed(code), None)
        return found

    def begin(self, user: str, token: str | None = None) -> str:
        """A new session; its secret, which the cookie of the browser has."""
        return self._new(self._sessions, Login(user, self._clock() + SESSION_SECONDS, token))

    def session(self, secret: str) -> tuple[User, Login] | None:
        """The user of a session, and the session."""
        login = self._sessions.get(hashed(secret))
        user = self._user(login)
        return None if login is None or user is None else (user, login)

    def end(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(hashed(secret), None)

    def _user(self, login: Login | None) -> User | None:
        if login is None or login.ends <= self._clock():
            return None
        if login.token is not None and not self._is_valid(login.token):
            return None
        return self._user_of(login.user)

    def _new(self, kept: dict[bytes, Login], login: Login) -> str:
        now = self._clock()
        for key in [key for key, one in kept.items() if one.ends <= now]:
            del kept[key]
        own = [key for key, one in kept.items() if one.user == login.user]
        for key in own[: len(own) - SESSIONS_MAX + 1]:  # In the order in which they began.
            del kept[key]
        secret = secrets.token_urlsafe(32)
        kept[hashed(secret)] = login
        return secret


def logins_of(users: Mapping[str, User]) -> Logins:
    """Logins of fixed users, such as the only one of a session."""
    return Logins(users.get)
