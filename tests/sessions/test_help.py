"""What `help(slotwise.Session)` shows."""

from __future__ import annotations

import re
from inspect import getdoc

from slotwise import Session
from slotwise.running import Options
from slotwise.sessions.methods import SessionMethods

METHODS = """
    add_host change close command eta etas executor explain folder forecasts hosts jobs map now
    page remove_host run set_objective set_pools set_scheduler slots submit what_if
"""


def test_a_session_has_only_what_users_may_call() -> None:
    """Its internals are in objects that it owns, and a client has the same."""
    assert [name for name in dir(Session) if not name.startswith("_")] == METHODS.split()
    assert Session.__bases__ == (SessionMethods,)
    assert Session.change.__qualname__ == "Session.change"


def test_each_option_of_a_session_is_described_on_its_line() -> None:
    """`shuffle` alone is missing, because a session does not use it."""
    described = re.findall(r"^([a-z_]+)  +\S", str(getdoc(Session)), re.MULTILINE)
    own = ["slots", "resources", "dask", "dask_slots", "scheduler", "pools", "history"]
    assert sorted(described) == sorted([*own, *(Options.__annotations__.keys() - {"shuffle"})])
