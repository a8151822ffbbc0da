"""The routes for the tokens of users: an administrator has all, a user its own."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slotwise.core.errors import InputError, shown, suggestion
from slotwise.service.answers import PlainResponse
from slotwise.service.engine.engine import Engine, MissingError
from slotwise.service.http.server import answering, audited, json_of, user_of
from slotwise.service.users.access import Role, User
from slotwise.service.users.tokens import Token, Tokens

DAYS_MAX = 36_500
"""The longest time for which a token can be used."""


class TokenRoutes:
    """Makes, lists and revokes tokens."""

    def __init__(self, engine: Engine, tokens: Tokens) -> None:
        self._engine, self._tokens = engine, tokens

    def routes(self) -> list[BaseRoute]:
        """The routes for an application."""
        revoke = "/v1/tokens/{token}/revoke"
        return [
            Route("/v1/tokens", self._route(TokenRoutes.list)),
            Route("/v1/tokens", self._route(TokenRoutes.create), methods=["POST"]),
            Route(revoke, self._route(TokenRoutes.revoke), methods=["POST"]),
        ]

    def _route(
        self, handler: Callable[[TokenRoutes, Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        return partial(answering(handler), self)

    async def list(self, request: Request) -> Response:
        """The tokens of the user; of an administrator those of all users."""
        by = user_of(request)
        found = self._tokens.of(None if by.is_admin else by.name)
        users = self._engine.settings.users
        rows = [{**token.to_plain(), "has_user": token.user in users} for token in found]
        return PlainResponse({"tokens": rows})

    async def create(self, request: Request) -> Response:
        """A new token; its text is in this answer only."""
        body, by = await json_of(request), user_of(request)
        name, days = body.get("user") or by.name, body.get("days")
        self._check_own(by, name)
        if not isinstance(name, str) or name not in self._engine.settings.users:
            known = list(self._engine.settings.users)
            remedy = suggestion(name, known, "state it under [service.users] in slotwise.toml")
            raise InputError(f"user {shown(name)} is not configured; {remedy}")
        if days is not None and not _is_time(days):
            raise InputError(f"days is {shown(days)}; give a number > 0, up to {DAYS_MAX}")
        create = self._tokens.create
        token, text = await run_in_threadpool(create, name, days, request.state.token)
        audited(request, token=token.id, of=name)
        return PlainResponse({**token.to_plain(), "token": text}, 201)

    async def revoke(self, request: Request) -> Response:
        """Let a token be of no more use, with the logins of browsers that it began."""
        id, by = str(request.path_params["token"]), user_of(request)
        token = self._tokens.found(id)
        if token is None or not (by.is_admin or token.user == by.name):
            raise MissingError(f"there is no token {id!r}; `slotwise token list` shows them")
        revoked: Token = await run_in_threadpool(self._tokens.revoke, id)
        audited(request, token=id, of=token.user)
        return PlainResponse(revoked.to_plain())

    def _check_own(self, by: User, name: Any) -> None:
        if name != by.name:
            by.check(Role.ADMIN, f"make tokens of user {shown(name)}")


def _is_time(days: object) -> bool:
    is_number = isinstance(days, int | float) and not isinstance(days, bool)
    return is_number and math.isfinite(days) and 0 < days <= DAYS_MAX  # type: ignore[arg-type,operator]
