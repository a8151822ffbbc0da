"""The stream of a page: a snapshot once a second for all pages, of which changes are sent.

The scheduler is asked only while a page is open, and as often whatever the number of pages;
otherwise once a minute for the slots of its pools. A page that reads slowly gets the changes of
several seconds at once, so that nothing is kept for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from starlette.concurrency import run_in_threadpool

from slotwise.service.page.page_source import (
    PageSample,
    PageSnapshot,
    PageSource,
    Section,
    SlotAttempt,
)

INTERVAL_SECONDS = 1.0
"""The time between two snapshots while a page is open."""

SAMPLE_SECONDS = 60.0
"""The time between two samples of the pools otherwise."""

FINE_MAX, COARSE_MAX = 600, 720
"""The samples that are kept: of ten minutes, and one a minute of twelve hours."""

BARS_MAX, BARS_SECONDS = 5_000, 600.0
"""The most tasks that have ended and are still drawn, and for how long."""

TICKS_MAX = 30
"""The snapshots that are kept; a page that has missed more gets the whole state again."""

POOLS_MAX = 24
"""The most pools whose samples are sent."""

_LOG = logging.getLogger("uvicorn.error")

Bar = tuple[str, float, float, str, str, int, int, str]
"""A task in a slot: the slot, begin and end, job, pool, task, attempt, and how it ended."""


@dataclass(frozen=True, slots=True)
class Tick:
    """A snapshot as pages get it; `sections` includes `slots`, the task in each slot."""

    number: int
    sections: Mapping[str, Section]
    own: Mapping[str, Section]
    sample: PageSample
    bars: Sequence[Bar] = ()
    _sent: dict[str | None, str] = field(default_factory=dict)

    def change(self, before: Tick, since: Sequence[Tick], user: str) -> bytes:
        """The event with what has changed since an earlier tick; `since` are those after it.

        What pages that are up to date get is made once for all of them.
        """
        if len(since) > 1:
            return _event("change", self._common(before, since), self._own(before, user))
        for key in (None, user):
            if key not in self._sent:
                made = self._common(before, since) if key is None else self._own(before, user)
                self._sent[key] = made
        return _event("change", self._sent[None], self._sent[user])

    def _common(self, before: Tick, since: Sequence[Tick]) -> str:
        found = differences(before.sections, self.sections)
        bars = [bar for one in since for bar in one.bars]
        samples = columns([one.sample for one in since])
        return _json({"at": self.sample.at, **found, "bars": bars, "samples": samples})

    def _own(self, before: Tick, user: str) -> str:
        empty: Section = {}
        old, new = before.own.get(user, empty), self.own.get(user, empty)
        return _json(differences({"own": old}, {"own": new}))


class Lanes:
    """Which task is in which slot: a task keeps its slots, others get the first free ones."""

    def __init__(self) -> None:
        self._of: dict[SlotAttempt, list[str]] = {}
        self._last: dict[str, SlotAttempt] = {}  # by slot
        self._free: dict[str, list[int]] = {}
        self._next: Counter[str] = Counter()

    def place(self, snapshot: PageSnapshot) -> tuple[Section, list[Bar]]:
        """The tasks by slot, and the bars of those that have ended since the last snapshot."""
        at, running = snapshot.sample.at, dict.fromkeys(snapshot.running)
        for attempt in [one for one in self._of if one not in running]:
            for lane in self._of.pop(attempt):
                heappush(self._free[attempt.host], int(lane.rpartition(":")[2]))
        for attempt in running:
            if attempt not in self._of:
                self._of[attempt] = [self._take(attempt.host) for _ in range(attempt.slots)]
        now = {lane: one for one, lanes in self._of.items() for lane in lanes}
        bars = list[Bar]()
        for lane, one in self._last.items():
            if (later := now.get(lane)) != one:
                end = at if later is None else min(at, max(one.begun, later.begun))
                how = snapshot.ended.get((one.job, one.phase, one.task, one.attempt), "done")
                task = one.job, one.pool, one.task, one.attempt
                bars.append((lane, one.begun, round(end, 3), *task, how))
        self._last = now
        return {
            lane: [one.job, one.pool, one.task, one.attempt, one.begun]
            for lane, one in now.items()
        }, bars

    def _take(self, host: str) -> str:
        if free := self._free.setdefault(host, []):
            return f"{host}:{heappop(free)}"
        self._next[host] += 1
        return f"{host}:{self._next[host] - 1}"


class PageHub:
    """Makes the snapshots of a scheduler, and the streams of the pages that show it.

    It belongs to an event loop, in which `run` must run.
    """

    def __init__(self, source: PageSource) -> None:
        self._source, self._lanes = source, Lanes()
        self._users: Counter[str] = Counter()  # of the open pages
        self._ticks: deque[Tick] = deque(maxlen=TICKS_MAX)
        self._fine: deque[PageSample] = deque(maxlen=FINE_MAX)
        self._coarse: deque[PageSample] = deque(maxlen=COARSE_MAX)
        self._bars: deque[Bar] = deque(maxlen=BARS_MAX)
        self._ticked, self._opened = asyncio.Condition(), asyncio.Event()
        self.is_closed = False

    async def run(self) -> None:
        """Make snapshots while pages are open, until it is cancelled."""
        while True:
            try:
                if self._users:
                    await self._tick()
                else:  # What is in the slots meanwhile is not known later.
                    self._lanes = Lanes()
                    self._ticks.clear()
                    self._opened.clear()
                    self._keep(await run_in_threadpool(self._source.sample))
            except (
                Exception
            ) as error:  # Pages show that nothing comes; jobs do not depend on it.
                _LOG.error("the page has no news: %r", error)
            if self._users:
                await asyncio.sleep(INTERVAL_SECONDS)
                continue
            with suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), SAMPLE_SECONDS)

    async def _tick(self) -> None:
        snapshot = await run_in_threadpool(self._source.snapshot, list(self._users))
        slots, bars = self._lanes.place(snapshot)
        sections = {**snapshot.sections, "slots": slots}
        tick = Tick(self._last + 1, sections, snapshot.own, snapshot.sample, bars)
        self._bars.extend(bars)
        self._fine.append(snapshot.sample)
        self._keep(snapshot.sample)
        async with self._ticked:
            self._ticks.append(tick)
            self._ticked.notify_all()

    def _keep(self, sample: PageSample) -> None:
        if not self._coarse or sample.at >= self._coarse[-1].at + SAMPLE_SECONDS:
            self._coarse.append(sample)

    async def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        async with self._ticked:
            self._ticked.notify_all()

    async def stream(self, user: str) -> AsyncIterator[bytes]:
        """The events for a page of a user: first the whole state, then what changes."""
        is_known = user in self._users
        self._users[user] += 1
        self._opened.set()
        try:
            yield b"retry: 1000\n\n"
            seen = await self._after(0 if is_known else self._last)
            yield self._whole(seen, user)
            while not self.is_closed:
                await self._after(seen.number)
                since = [one for one in self._ticks if one.number > seen.number]
                if self.is_closed or not since:
                    return
                if since[0].number > seen.number + 1:  # Some are not kept any more.
                    yield self._whole(since[-1], user)
                else:
                    yield since[-1].change(seen, since, user)
                seen = since[-1]
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]

    @property
    def _last(self) -> int:
        return self._ticks[-1].number if self._ticks else 0

    async def _after(self, number: int) -> Tick:
        """The last tick, as soon as it is later than this one."""
        async with self._ticked:
            await self._ticked.wait_for(lambda: self.is_closed or self._last > number)
        return self._ticks[-1]

    def _whole(self, tick: Tick, user: str) -> bytes:
        """The event with the whole state."""
        since = tick.sample.at - BARS_SECONDS
        kept = {id(one): one for one in (*self._coarse, *self._fine)}  # Each once.
        samples = sorted(kept.values(), key=lambda one: one.at)
        common = {
            "at": tick.sample.at,
            "about": {**self._source.about(), "user": user},
            "set": tick.sections,
            "bars": [bar for bar in self._bars if bar[2] >= since],
            "samples": columns(samples),
        }
        own = {"set": {"own": tick.own.get(user, {})}}
        return _event("state", _json(common), _json(own))


def differences(
    before: Mapping[str, Section], after: Mapping[str, Section]
) -> dict[str, dict[str, Any]]:
    """What to set in each section, and the keys that it does not have any more."""
    empty: Section = {}
    changed, removed = dict[str, Section](), dict[str, list[str]]()
    for name, section in after.items():
        old = before.get(name, empty)
        new = {key: value for key, value in section.items() if old.get(key) != value}
        lost = [key for key in old if key not in section]
        changed |= {name: new} if new else {}
        removed |= {name: lost} if lost else {}
    return {"set": changed, "removed": removed}


def columns(samples: Sequence[PageSample]) -> dict[str, Any]:
    """Samples as columns: of pools the used slots and the share, of resources use and all."""
    pools = dict.fromkeys(name for one in samples for name in one.pools)
    kinds = dict.fromkeys(name for one in samples for name in one.resources)
    nothing = (None, None)
    return {
        "at": [round(one.at, 1) for one in samples],
        "pools": {
            name: _pairs(one.pools.get(name, nothing) for one in samples)
            for name in list(pools)[:POOLS_MAX]
        },
        "resources": {
            name: _pairs(one.resources.get(name, nothing) for one in samples) for name in kinds
        },
    }


def _pairs(pairs: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*pairs, strict=True)]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _event(name: str, common: str, own: str) -> bytes:
    return f'event: {name}\ndata: {{"common":{common},"own":{own}}}\n\n'.encode()
