"""Changes of the settings of a server that runs."""

from __future__ import annotations

from dataclasses import fields, replace

from slotwise.core.errors import InputError, SlotwiseError
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool
from slotwise.service.engine.engine import Engine
from slotwise.service.settings import Settings

FIXED = ("dask", "dask_slots", "resources", "options", "preemption", "run_as", "output_max")
"""The settings that only a start takes; a restart loses nothing."""


def changed(engine: Engine, new: Settings) -> list[str]:
    """Take over what has changed, and describe each change. InputError changes nothing."""
    old, texts = engine.settings, list[str]()
    for name in FIXED:
        if getattr(old, name) != getattr(new, name):
            raise InputError(f"{name} has changed, which takes a restart of the server")
    if _place(old) != _place(new):
        raise InputError("listen has changed, which takes a restart of the server")
    if old.users != new.users:
        new.check_accounts()
    if old.slots != new.slots:
        raise InputError("slots has changed, which takes a restart of the server")
    try:
        texts += _in_session(engine, old, new)
    except SlotwiseError:
        _in_session(engine, new, old)  # The changes before the one that is refused.
        raise
    for name in ("drain_seconds", "keep_days", "keep_jobs"):
        if getattr(old, name) != getattr(new, name):
            texts.append(f"{name} is now {getattr(new, name)}")
    if old.network != new.network:
        texts.append("the network has changed: certificate or hosts")
    texts += _user_changes(old, new)
    engine.settings = replace(new)
    return texts


def _place(settings: Settings) -> object:
    """What of the network only a start takes."""
    one = settings.network
    return one and (one.host, one.port, one.certificate is None)


def _user_changes(old: Settings, new: Settings) -> list[str]:
    before, after = old.users, new.users
    return [
        *(f"user {name} is new" for name in after if name not in before),
        *(
            f"user {name} is removed: its tokens are of no use"
            for name in before.keys() - after
        ),
        *(
            f"user {name} has changed"
            for name in after
            if before.get(name, after[name]) != after[name]
        ),
    ]


def _in_session(engine: Engine, old: Settings, new: Settings) -> list[str]:
    """Change the session. InputError, perhaps after some of the changes."""
    texts = list[str]()
    if old.pools != new.pools:
        engine.session.set_pools(new.all_pools())
        texts += _pool_changes(old, new)
    if old.objective != new.objective:
        engine.session.set_objective(new.objective or Objective())
        texts.append(f"the objective is now {(new.objective or Objective()).penalty}")
    if old.scheduler != new.scheduler:
        engine.session.set_scheduler(new.scheduler)
        texts.append(f"the scheduler is now {new.scheduler} ({old.scheduler} before)")
    return texts


def _pool_changes(old: Settings, new: Settings) -> list[str]:
    before = {pool.name: pool for pool in old.pools}
    after = {pool.name: pool for pool in new.pools}
    texts = [f"pool {name} is new" for name in after if name not in before]
    texts += [f"pool {name} is no longer stated" for name in before if name not in after]
    texts += [
        f"pool {name} has changed: {', '.join(_differing(before[name], after[name]))}"
        for name in after
        if name in before and before[name] != after[name]
    ]
    return texts


def _differing(old: Pool, new: Pool) -> list[str]:
    """What has another value in a pool now; numbers with their values."""
    values = [(one.name, getattr(old, one.name), getattr(new, one.name)) for one in fields(new)]
    return [
        f"{name} {now} ({was} before)" if isinstance(now, int | float) else name
        for name, was, now in values
        if was != now
    ]
