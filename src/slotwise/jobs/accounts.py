"""Accounts of this machine: processes of users run as these, where the server runs as root."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

USUAL = ("PATH", "LANG", "LANGUAGE", "TZ")
"""The variables of the server that the processes of users have too, with those of LC_."""

OF_INTERPRETER = ("LD_LIBRARY_PATH", "PYTHON")
"""How the names of the variables of the server begin that its interpreter needs elsewhere."""


SET_DUMPABLE = 4
"""The prctl operation that says whether others can read the memory of a process."""


class Account(NamedTuple):
    """An account, with what its processes get. It is never root."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @classmethod
    def named(cls, name: str) -> Account:
        """The account of this name, as the machine knows it now. InputError for root.

        Also for a name that there is not.
        """
        import pwd

        from slotwise.core.errors import InputError  # Supervisors do not need these.

        try:
            found = pwd.getpwnam(name)
        except KeyError:
            why = f"account {name!r} does not exist; make it, or name another for the user"
            raise InputError(why) from None
        if not (found.pw_uid and found.pw_gid):
            why = f"account {name!r} is root or in its group, as which no work of users runs"
            raise InputError(f"{why}; name another for the user")
        groups = tuple(os.getgrouplist(name, found.pw_gid))
        home, shell = found.pw_dir or "/", found.pw_shell or "/bin/sh"
        return cls(name, found.pw_uid, found.pw_gid, groups, home, shell)

    @classmethod
    def of(cls, plain: Sequence[Any] | None) -> Account | None:
        """The account that was a JSON list, or None."""
        if plain is None:
            return None
        name, uid, gid, groups, home, shell = plain
        return cls(name, uid, gid, tuple(groups), home, shell)

    def become(self) -> None:
        """Make this process, of root, one of the account, with no way back. OSError if not.

        No other process of the account can read its memory or take its files, unless it
        starts another program. It leaves its folder, in which it may be by the rights of root.
        """
        import ctypes

        os.chdir("/")
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)  # Some systems do not do it.

    def variables(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of its processes: usual variables, what is given, and who it is."""
        usual = {n: v for n, v in os.environ.items() if n in USUAL or n.startswith("LC_")}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": self.shell}
        return {**usual, **given, **own}


def of_interpreter() -> dict[str, str]:
    """The variables of this process that its interpreter needs in processes of others."""
    return {n: value for n, value in os.environ.items() if n.startswith(OF_INTERPRETER)}
