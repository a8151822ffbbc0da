"""Tokens: the secrets by which users identify themselves on a network.

A token is `slw_ID_SECRET`. The store has its hash only: the secret has 256 random bits, so that
nobody finds it by trying.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from slotwise.core.errors import InputError
from slotwise.service.store.store import Store
from slotwise.service.users.logins import hashed

PREFIX = "slw"
"""The beginning of all tokens, by which programs that search for secrets know them."""

USED_SECONDS = 600.0
"""A use of a token is stored if the last one that is stored is older."""

TOKENS_MAX = 100
"""The most tokens of a user that can be used."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a user. Instants are Unix seconds; `used` is right to ten minutes."""

    id: str
    user: str
    hash: bytes
    created: float
    expires: float | None = None
    used: float | None = None
    revoked: float | None = None

    def is_valid(self, now: float) -> bool:
        """Whether it can be used."""
        return self.revoked is None and (self.expires is None or now < self.expires)

    def to_plain(self) -> dict[str, Any]:
        """What lists show of it."""
        return {
            "id": self.id,
            "user": self.user,
            "created": self.created,
            "expires": self.expires,
            "used": self.used,
            "revoked": self.revoked,
        }


class Tokens:
    """The tokens of a store. They are read once, because only this process changes them.

    A change blocks until it is durable.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store, self._clock = store, clock
        self._by_id = {token.id: token for token in (Token(*row) for row in store.tokens())}
        self._used = {token.id: token.used or 0.0 for token in self._by_id.values()}

    def create(
        self, user: str, days: float | None = None, by: str | None = None
    ) -> tuple[Token, str]:
        """A new token, and its text, which is nowhere else. InputError for too many.

        It ends no later than the token with the id `by`, which asks for it: what a leaked one
        has made ends with it.
        """
        now = self._clock()
        if sum(one.is_valid(now) for one in self.of(user)) >= TOKENS_MAX:
            raise InputError(f"user {user!r} has {TOKENS_MAX} tokens; revoke some first")
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        maker = None if by is None else self._by_id[by].expires
        stated = None if days is None else now + days * 86_400
        expires = min((one for one in (stated, maker) if one is not None), default=None)
        token = Token(id, user, hashed(secret), now, expires)
        self._store.add_token(id, user, token.hash, now, expires).result()
        self._by_id[id] = token
        return token, f"{PREFIX}_{id}_{secret}"

    def find(self, text: str) -> Token | None:
        """The valid token with this text. Takes microseconds."""
        prefix, _, rest = text.partition("_")
        id, _, secret = rest.partition("_")
        token = self._by_id.get(id) if prefix == PREFIX else None
        if token is None or not hmac.compare_digest(token.hash, hashed(secret)):
            return None
        now = self._clock()
        if not token.is_valid(now):
            return None
        if now - self._used.get(id, 0.0) > USED_SECONDS:
            self._used[id] = now
            self._store.note_token(id, used=now)  # It need not be durable.
        return token

    def of(self, user: str | None = None) -> list[Token]:
        """The tokens of a user, or of all, by the time of their creation."""
        return [
            replace(one, used=self._used.get(one.id) or None)
            for one in list(self._by_id.values())
            if user in (None, one.user)
        ]

    def found(self, id: str) -> Token | None:
        """The token with this id, which need not be valid."""
        return self._by_id.get(id)

    def is_valid(self, id: str) -> bool:
        """Whether the token with this id can be used."""
        token = self._by_id.get(id)
        return token is not None and token.is_valid(self._clock())

    def revoke(self, id: str) -> Token:
        """Let a token be of no more use; no effect on one that is revoked."""
        now = self._clock()
        self._store.note_token(id, revoked=now).result()
        if (token := self._by_id[id]).revoked is None:
            self._by_id[id] = replace(token, revoked=now)
        return self._by_id[id]
