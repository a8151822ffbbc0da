"""The paths `/metrics`, `/health`, `/ready` and `/v1/openapi.json`: the server for other tools.

`ServiceCounts` counts what happens. All else is read once for each request to `/metrics`, in
one question to the session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from slotwise import __version__
from slotwise.core.resources import in_units
from slotwise.service.engine.counts import WAIT_BOUNDS, ServiceCounts
from slotwise.service.engine.engine import Engine
from slotwise.service.settings import HELD

METHODS = frozenset({"GET", "POST", "HEAD"})
"""The methods that are counted by name: clients must not make any number of series."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class OpenJob(NamedTuple):
    """A job in the session: its pool there, and whether a task of it runs."""

    id: str
    pool: str
    is_running: bool


class SlotsOfPool(NamedTuple):
    """The slots of one kind that a pool uses, and what it should have of them."""

    pool: str
    kind: str
    used: int
    fair: float
    guaranteed: float


class SchedulerReading(NamedTuple):
    """The session at an instant, copied."""

    slots: dict[str, int]
    pools: list[SlotsOfPool]
    resources: dict[str, tuple[float, float]]
    jobs: list[OpenJob]


def reading_of(engine: Engine) -> SchedulerReading:
    """The session now. O(pools + hosts + jobs) in its thread."""
    state = engine.core.state

    def read() -> SchedulerReading:
        kinds = list(state.cluster.capacity)
        total, free = Counter[str](), Counter[str]()
        awaiting = state.not_admitted
        for host in state.cluster.hosts:
            if host.name not in state.lost:
                for name, amount in host.resources.items():
                    total[name] += amount
                    free[name] += state.spare.amount(host.name, name)
        return SchedulerReading(
            {kind: state.capacity(kind) for kind in kinds},
            [
                SlotsOfPool(one.name, kind, one.running, one.share, float(one.min_share))
                for kind in kinds
                for one in state.shares(kind)
                if one.name != HELD
            ],
            {
                name: (in_units(name, total[name] - free[name]), in_units(name, total[name]))
                for name in total
            },
            [
                OpenJob(phases[0].job.id, phases[0].job.pool, any(p.launches for p in phases))
                for phases in state.jobs_left()
            ]
            + [OpenJob(name, state.phases_of(name)[0].job.pool, False) for name in awaiting],
        )

    return engine.core.ask(read)


class ServiceCollector(Collector):
    """The metrics of a server, made when they are asked for."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def describe(self) -> Iterable[Metric]:
        """Nothing: the session is not asked when the collector is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        now, counts = reading_of(self._engine), self._engine.counts
        yield from _of_server(self._engine)
        yield from _of_slots(now)
        yield from self._of_jobs(now, counts)
        yield from _of_work(counts, self._engine)

    def _of_jobs(self, now: SchedulerReading, counts: ServiceCounts) -> Iterator[Metric]:
        found = Counter(map(self._state, now.jobs))
        yield _gauge("jobs", "Jobs that are not over.", ("pool", "state"), found)
        name = "slotwise_jobs_ended"
        ended = CounterMetricFamily(name, "Jobs that have ended.", labels=("pool", "state"))
        for labels, count in _copied(counts.jobs):
            ended.add_metric(labels, count)
        yield ended
        waits = HistogramMetricFamily(
            "slotwise_queue_wait_seconds",
            "Time from the submission of a job to its first task.",
            labels=("pool",),
        )
        for pool, wait in _copied(counts.waits):
            bounds = (*map(str, WAIT_BOUNDS), "+Inf")
            buckets = list(zip(bounds, accumulate(wait.counts), strict=True))
            waits.add_metric((pool,), buckets, wait.seconds)
        yield waits

    def _state(self, job: OpenJob) -> tuple[str, str]:
        """The pool and the state of a job. The session has held jobs in a pool of their own."""
        state = "running" if job.is_running else "held" if job.pool == HELD else "queued"
        record = self._engine.record_of(job.id) if job.pool == HELD else None
        return job.pool if record is None else record.pool, state


def _of_server(engine: Engine) -> Iterator[Metric]:
    about = {"version": __version__, "scheduler": engine.settings.scheduler}
    info = _gauge("info", "The server.", tuple(about), {tuple(about.values()): 1})
    yield info


def _of_slots(now: SchedulerReading) -> Iterator[Metric]:
    kinds = {(kind,): count for kind, count in now.slots.items()}
    yield _gauge("slots", "Slots of hosts that respond.", ("kind",), kinds)
    for name, about, value in _OF_POOLS:
        found = {(one.pool, one.kind): value(one) for one in now.pools}
        yield _gauge(f"pool_slots_{name}", about, ("pool", "kind"), found)
    for name, place in (("used", 0), ("amount", 1)):
        amounts = {(one,): pair[place] for one, pair in now.resources.items()}
        text = "What tasks hold of a resource." if place == 0 else "All of a resource."
        yield _gauge(f"resource_{name}", f"{text} Memory is in bytes.", ("resource",), amounts)


_OF_POOLS: tuple[tuple[str, str, Callable[[SlotsOfPool], float]], ...] = (
    ("used", "Slots that a pool holds.", lambda one: one.used),
    ("fair", "Slots that a pool should hold now.", lambda one: one.fair),
    ("guaranteed", "Slots that a pool is guaranteed.", lambda one: one.guaranteed),
    (
        "fairness_gap",
        "Slots that a pool holds above its fair share, below it if negative.",
        lambda one: one.used - one.fair,
    ),
)


def _of_work(counts: ServiceCounts, engine: Engine) -> Iterator[Metric]:
    for name, about, label, found in (
        ("decisions", "Decisions of the scheduler.", "kind", counts.decisions),
        ("preemptions", "Tasks stopped for a pool.", "pool", counts.preemptions),
        ("attempts_ended", "Attempts of tasks that have ended.", "outcome", counts.attempts),
    ):
        family = CounterMetricFamily(f"slotwise_{name}", about, labels=(label,))
        for key, count in _copied(found):
            family.add_metric((key,), count)
        yield family
    requests = CounterMetricFamily(
        "slotwise_http_requests", "Requests that were answered.", labels=("method", "status")
    )
    for labels, count in _copied(counts.requests):
        requests.add_metric(labels, count)
    yield requests
    for name, about, measured in (
        ("scheduling", "Time in which the scheduler decides.", engine.core.loop.decided),
        ("store_commit", "Time of transactions of the store.", engine.store.commits),
    ):
        yield SummaryMetricFamily(f"slotwise_{name}_seconds", about, *measured)


def _gauge(name: str, about: str, labels: tuple[str, ...], found: Any) -> Metric:
    family = GaugeMetricFamily(f"slotwise_{name}", about, labels=labels)
    for key, value in found.items():
        family.add_metric(key, value)
    return family


def _copied(found: Any) -> list[Any]:
    """The items of a dictionary to which other threads add."""
    return list(found.copy().items())


class RequestCounter:
    """Counts the requests to an ASGI application by method and status."""

    def __init__(self, application: Application, counts: ServiceCounts) -> None:
        self._application, self._counts = application, counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "other"

        async def counted(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._counts.requests[method, str(message["status"])] += 1
            await send(message)

        await self._application(scope, receive, counted)


def telemetry_routes(engine: Engine, is_closed: Callable[[], bool]) -> list[Route]:
    """The routes. `is_closed` says whether no jobs are accepted now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ServiceCollector(engine))
    ProcessCollector(registry=registry)

    async def metrics(request: Request) -> Response:
        encode, kind = choose_encoder(request.headers.get("accept", ""))
        body = await run_in_threadpool(encode, registry)
        return Response(body, headers={"Content-Type": kind})

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        return (
            PlainTextResponse("not ready\n", 503) if is_closed() else PlainTextResponse("ok\n")
        )

    async def openapi(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(description))

    return [
        Route("/metrics", metrics),
        Route("/health", health),
        Route("/ready", ready),
        Route("/v1/openapi.json", openapi),
    ]


@cache
def description() -> dict[str, Any]:
    """The HTTP interface as OpenAPI, from the file beside this one."""
    found: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text())
    return found
