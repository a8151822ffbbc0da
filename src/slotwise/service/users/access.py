"""Who may do what in a service: its users, and their roles in its pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from slotwise.core.errors import (
    MAX_WHOLE,
    InputError,
    SlotwiseError,
    check_name,
    check_whole,
    suggestion,
)

EVERY_POOL = "*"
"""In the roles of a user: all pools."""

JOBS_MAX = 10_000
"""The most jobs of a user that are not over, unless its configuration states another number."""

UNLIMITED = MAX_WHOLE
"""The number of jobs of a user without a limit."""


class Role(IntEnum):
    """What a user may do in a pool; each role includes those before it."""

    SUBMIT = 1
    MANAGE = 2
    ADMIN = 3


class ForbiddenError(SlotwiseError):
    """The user is known, and may not do this."""


@dataclass(frozen=True, slots=True)
class User:
    """A user of a service.

    account   the account of the system that its work runs as, where the server can choose one
    roles     by pool; a role holds in the pools below, too, and that of "*" in all
    jobs_max  the most jobs that are not over
    """

    name: str
    account: str
    roles: Mapping[str, Role] = field(default_factory=lambda: SUBMITS)
    jobs_max: int = JOBS_MAX

    def __post_init__(self) -> None:
        check_name("the name of a user", self.name)
        check_name(f"user {self.name!r}: account", self.account)
        for pool in self.roles:
            check_name(f"user {self.name!r}: a pool in roles", pool)
        check_whole(f"user {self.name!r}: jobs_max", self.jobs_max, least=0)

    def may(self, role: Role, *pools: str) -> bool:
        """Whether it has a role in a pool; `pools` are the pool and those above it.

        Without a pool: whether it has the role everywhere.
        """
        return any(self.roles.get(pool, 0) >= role for pool in (EVERY_POOL, *pools))

    @property
    def is_admin(self) -> bool:
        """Whether it may do everything."""
        return self.may(Role.ADMIN)

    def check(self, role: Role, what: str, *pools: str) -> None:
        """ForbiddenError unless it has a role in a pool."""
        if not self.may(role, *pools):
            where = f"in pool {pools[0]!r}" if pools else "in all pools"
            raise ForbiddenError(
                f"user {self.name!r} may not {what}: it takes the role {role.name.lower()!r}"
                f" {where}; an administrator of the server gives it"
            )

    def to_plain(self) -> dict[str, Any]:
        """What `GET /v1/whoami` answers."""
        roles = {pool: role.name.lower() for pool, role in self.roles.items()}
        return {"user": self.name, "roles": roles, "admin": self.is_admin}


SUBMITS: Mapping[str, Role] = MappingProxyType({EVERY_POOL: Role.SUBMIT})
"""The roles of a user for whom none are stated."""


def roles_of(user: str, stated: Mapping[str, str]) -> Mapping[str, Role]:
    """Roles by pool, from their names. InputError for a name that is none."""
    known = [role.name.lower() for role in Role]
    for pool, name in stated.items():
        if name not in known:
            raise InputError(
                f"user {user!r}: the role of pool {pool!r} is {name!r};"
                f" {suggestion(name, known)}"
            )
    return {pool: Role[name.upper()] for pool, name in stated.items()}


def own_user(account: str) -> User:
    """The account that the server runs as, by its own socket: it may do everything."""
    return User(account, account, {EVERY_POOL: Role.ADMIN}, UNLIMITED)
