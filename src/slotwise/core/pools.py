"""Pools: the jobs of one user or group, with guarantees and limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, reduce
from math import inf
from typing import Annotated, Any, Literal, NamedTuple, get_args

from slotwise.core.cluster import ANY_KIND, MAX_SLOTS, Cluster, Host
from slotwise.core.errors import (
    MAX_NUMBER,
    MIN_NUMBER,
    TIME,
    InputError,
    Limits,
    Seconds,
    check_limits,
    check_name,
    check_range,
    check_type,
    is_number,
    shown,
    suggestion,
)
from slotwise.core.job import Job, Phase
from slotwise.core.resources import (
    GPU,
    MEMORY,
    UNLIMITED,
    Resources,
    ResourcesMax,
    amount_text,
    resources_max_of,
)
from slotwise.core.retries import StopsPerHour
from slotwise.core.units import Percent, share_of

PoolPolicy = Literal["fair", "fifo"]
JobWeights = Literal["stated", "size"]
Wait = Annotated[float, replace(TIME, or_infinite=True)]
"""Seconds; infinity means never."""
Fraction = Annotated[float, Limits(MIN_NUMBER, 1, "it must be above 0 and at most 1")]


EVERY_USER = "*"
"""In `jobs_max_per_user`: each user that is not named."""

PER_USER = ("jobs_max_per_user", "promises_max_per_user")
"""The limits of a pool that are numbers by user."""

PROMISES_MAX = 10
"""The open promises that a user may have where no pool states it."""


Weight = Annotated[float, Limits(0, MAX_NUMBER, f"give a number from 0 to {MAX_NUMBER:g}")]
JobsMax = Annotated[int, Limits(0, inf, "give a whole number >= 0", whole=True)]


@dataclass(frozen=True, slots=True)
class Preemption:
    """When and how a pool below its share takes slots back from other pools, as it is stated.

    least_after  seconds below its min share after which it takes back the missing slots; `inf`:
                 never
    fair_after   seconds below `fraction` of its share after which it takes back what it lacks
                 of its whole share; `inf`: never
    fraction     part of the share from the allocator (under FAIR, of its fair share): 1/2 in
                 Hadoop, 2/3 in Hammr
    grace        seconds from when a task is asked to stop until it is killed
    jobs_after   seconds for which a job of the pool, of policy fair, is below `fraction` of its
                 share after which it takes back from other jobs of the pool; `inf`: never
    dry_run      whether it stops nothing, but logs what it would stop (`WouldPreempt`), once
                 for each shortage

    Each of them that is None is inherited from the pool above, at the top from the workload.
    What nobody states has the value of `TimeOuts`.
    """

    least_after: Wait | None = None
    fair_after: Wait | None = None
    fraction: Fraction | None = None
    grace: Seconds | None = None
    jobs_after: Wait | None = None
    dry_run: bool | None = None

    def __post_init__(self) -> None:
        check_limits("preemption", self)
        remedy = "give True or False"
        check_type("preemption: dry_run", self.dry_run, bool | None, remedy)

    def stated(self) -> dict[str, Any]:
        """What is not inherited, by name."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def within(self, outer: Preemption | None) -> Preemption:
        """This, with what it does not state as in `outer`."""
        return self if outer is None else Preemption(**(outer.stated() | self.stated()))


@dataclass(frozen=True, slots=True)
class TimeOuts:
    """The `Preemption` of a pool with all that it inherits."""

    least_after: float = inf
    fair_after: float = inf
    fraction: float = 0.5
    grace: float = 0.0
    jobs_after: float = inf
    dry_run: bool = False


@dataclass(frozen=True)
class Pool:
    """Jobs of one user or group: weight, min and max share by kind of slot, inner policy.

    resources_max  the most of other resources that its tasks hold together, including those of
                 pools below it: `{"memory": "64 GiB", "gpu": 2}`. 0: nothing of it
    weight       its share relative to its siblings; with 0 it gets its min share only
    jobs_max     most jobs that run at once, including those of pools below it; others wait
    jobs_max_per_user  the same for the jobs of each user: one number, or numbers by user, with
                 "*" for users that are not named. Jobs without a user have no such limit
    promises_max_per_user  the same for the open promises of each user. If no pool states it, a
                 user has at most `PROMISES_MAX`
    preemptible  whether tasks in it, or in pools below it, may be stopped for a pool or a job
    stops_per_hour  the most times within any hour that tasks of one of its jobs are stopped for
                 a pool or a job; the tasks of a gang count once. None is inherited from the
                 parent; at the top it means no limit. It goes before what pools are guaranteed:
                 one may wait for its min share until jobs may be stopped again
    job_weights  the weights by which jobs share: "stated" is their weight; "size" is their
                 weight times the logarithm of their remaining work, so that larger jobs get
                 more, but not in proportion (Hadoop Fair Scheduler, sizebasedweight)
    parent       the pool that contains this one, None for one at the top
    preemption   what it does not state, or None, is inherited from the parent; at the top None
                 means that nothing is taken back

    A share may be a part of the cluster, "50%", until the tree is `on` a cluster.
    """

    name: str = "default"
    weight: Weight = 1.0
    slots_min: Mapping[str, int] = field(default_factory=dict)
    slots_max: Mapping[str, int] = field(default_factory=dict)
    policy: PoolPolicy = "fair"
    parent: str | None = None
    jobs_max: JobsMax | None = None
    job_weights: JobWeights = "stated"
    preemption: Preemption | None = None
    jobs_max_per_user: Mapping[str, int] = field(default_factory=dict)
    preemptible: bool = True
    stops_per_hour: StopsPerHour | None = None
    promises_max_per_user: Mapping[str, int] = field(default_factory=dict)
    resources_max: Mapping[str, Any] = UNLIMITED

    def __post_init__(self) -> None:
        check_name("the name of a pool", self.name)
        if self.parent is not None:
            check_name(f"pool {self.name!r}: parent", self.parent)
        check_limits(f"pool {self.name!r}", self)
        if 0 < self.weight < MIN_NUMBER:
            raise InputError(
                f"pool {self.name!r}: weight is {shown(self.weight)}; give 0, or a number from"
                f" {MIN_NUMBER:g}"
            )
        for name, known in ("policy", PoolPolicy), ("job_weights", JobWeights):
            if getattr(self, name) not in get_args(known):
                raise InputError(
                    f"pool {self.name!r}: {name} is {shown(getattr(self, name))}; give one of"
                    f" {', '.join(get_args(known))}"
                )
        remedy = "give a slotwise.Preemption, or leave it out"
        what = f"pool {self.name!r}: preemption"
        check_type(what, self.preemption, Preemption | None, remedy)
        what = f"pool {self.name!r}: preemptible"
        check_type(what, self.preemptible, bool, "give True or False")
        self._check_users()
        what = f"pool {self.name!r}: resources_max"
        object.__setattr__(self, "resources_max", resources_max_of(what, self.resources_max))
        for name in ("slots_min", "slots_max"):
            shares = getattr(self, name)
            shares = share_of(f"pool {self.name!r}: {name}", shares)
            if is_number(shares) or isinstance(shares, Percent):
                shares = {ANY_KIND: shares}  # One covers all kinds, as in a workload file.
            elif not isinstance(shares, Mapping):
                raise InputError(
                    f"pool {self.name!r}: {name} is {shown(shares)}; give a whole number, or"
                    " one for each kind of slot"
                )
            checked = {}
            for kind, share in shares.items():
                check_name(f"pool {self.name!r}: a kind of slot in {name}", kind)
                remedy = f"give a whole number from 0 to {MAX_SLOTS}"
                what = f"pool {self.name!r}: {name} of kind {kind!r}"
                checked[kind] = share_of(what, share)
                if not isinstance(checked[kind], Percent):
                    check_range(what, share, 0, MAX_SLOTS, remedy, whole=True)
            if checked != getattr(self, name):
                object.__setattr__(self, name, checked)
        for kind, min_share in self.slots_min.items():
            max_share = self.slots_max.get(kind)
            if max_share is None or isinstance(min_share, Percent) != isinstance(
                max_share, Percent
            ):
                continue  # They are compared again when the cluster is known.
            if min_share > max_share:
                raise InputError(
                    f"pool {self.name!r}: slots_min {min_share} of kind {kind!r} is above its"
                    f" slots_max {max_share}; lower one or raise the other"
                )

    def _check_users(self) -> None:
        """Check the limits by user; one number is for each user."""
        remedy = "give a whole number >= 0, or one for each user"
        for key in PER_USER:
            what, given = f"pool {self.name!r}: {key}", getattr(self, key)
            if not isinstance(given, Mapping):
                given = {EVERY_USER: given}
                object.__setattr__(self, key, given)
            for user, most in given.items():
                check_name(f"{what}: a user", user)
                of_user = "" if user == EVERY_USER else f" of user {user!r}"
                check_range(f"{what}{of_user}", most, 0, inf, remedy, whole=True)

    def jobs_max_of(self, user: str | None) -> int | None:
        """The most jobs of a user that run at once; None without a limit."""
        limits = self.jobs_max_per_user
        return limits.get(user, limits.get(EVERY_USER)) if limits and user else None

    def promises_max_of(self, user: str) -> int | None:
        """The most open promises of a user; None without a limit."""
        limits = self.promises_max_per_user
        return limits.get(user, limits.get(EVERY_USER))

    def max_share(self, kind: str) -> float:
        """The most slots that its share named after a kind may hold: see `ShareKey`."""
        return self.slots_max.get(kind, inf) if self.weight else self.slots_min.get(kind, 0)

    @property
    def has_shares(self) -> bool:
        """Whether it has a min or a max share of any kind, or limits of other resources."""
        return bool(self.slots_min or self.slots_max or self.resources_max or not self.weight)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of phases for which it has separate shares."""
        return frozenset(self.slots_min) | frozenset(self.slots_max)

    @property
    def has_parts(self) -> bool:
        """Whether a share is a part of a cluster that is not known yet."""
        shares: list[object] = [*self.slots_min.values(), *self.slots_max.values()]
        shares += self.resources_max.values()
        return any(isinstance(share, Percent) for share in shares)

    def on(self, cluster: Cluster) -> Pool:
        """This pool with numbers for this cluster: a max share of slots has at least one."""
        if not self.has_parts:
            return self
        min_shares, max_shares = (
            {
                kind: share.of_total(_slots_for(kind, cluster, shares), least)
                if isinstance(share, Percent)
                else share
                for kind, share in shares.items()
            }
            for least, shares in ((0, self.slots_min), (1, self.slots_max))
        )
        assert isinstance(self.resources_max, ResourcesMax)
        limits = self.resources_max.on(cluster.totals)
        return replace(self, slots_min=min_shares, slots_max=max_shares, resources_max=limits)


def _slots_for(kind: str, cluster: Cluster, shares: Iterable[str]) -> int:
    """The slots of a kind; a plain number is for all kinds without a share of their own."""
    capacity = cluster.capacity
    if kind == ANY_KIND:
        return sum(count for one, count in capacity.items() if one == kind or one not in shares)
    return capacity.get(kind, capacity.get(ANY_KIND, 0))


# Pools as users state them: a list, or a mapping by name.

PoolsStated = Iterable[Pool | Mapping[str, Any]] | Mapping[str, float | Mapping[str, Any]]
"""Pools as a list, or by name: each with its weight, or with its keys."""

_KEYS = tuple(one.name for one in fields(Pool))


def pools_by_name(stated: Mapping[Any, Any]) -> list[dict[str, Any]]:
    """Pools that are stated by name, as a list of the keys of each.

    `{"a": 2, "b": {"slots_max": 3}}` becomes
    `[{"name": "a", "weight": 2}, {"name": "b", "slots_max": 3}]`. InputError for what cannot be
    a name, and for a name among the keys; the values are not checked.
    """
    pools = []
    for name, given in stated.items():
        check_name("the name of a pool", name)
        if isinstance(given, Pool):
            raise InputError(
                f"pool {name!r} is {shown(given)}; expected a weight, or keys and values such"
                " as {slots_min: 2}"
            )
        if isinstance(given, Mapping) and "name" in given:
            raise InputError(f"pool {name!r} is named by its key; remove `name` within it")
        keys = dict(given) if isinstance(given, Mapping) else {"weight": given}
        pools.append({"name": name, **keys})
    return pools


def pools_of(stated: Any, what: str = "pools") -> tuple[Pool, ...]:
    """The pools of a list or a mapping (`PoolsStated`). InputError with place and remedy."""
    if isinstance(stated, Mapping):
        try:
            listed = pools_by_name(stated)
        except InputError as error:
            raise InputError(f"{what}: {error}") from None
        return tuple(_made(keys, f"{what}.{keys['name']}") for keys in listed)
    if isinstance(stated, Iterable) and not isinstance(stated, str | bytes):
        return tuple(
            _made(one, f"{what}[{number}]") if isinstance(one, Mapping) else _given(one, what)
            for number, one in enumerate(stated)
        )
    return (_given(stated, what),)


def _given(pool: Any, what: str) -> Pool:
    if isinstance(pool, Pool):
        return pool
    raise InputError(
        f"{what}: {shown(pool)} is not a pool; expected a list such as [slotwise.Pool('a')], or"
        " weights by name such as {'a': 2}"
    )


def _made(keys: Mapping[str, Any], where: str) -> Pool:
    """The pool with these keys; an InputError gets the place."""
    for key in keys:
        if key not in _KEYS:
            raise InputError(f"{where}: unknown key {key!r}; {suggestion(key, _KEYS)}")
    if "name" not in keys:
        raise InputError(f"{where}: name is missing; add it")
    try:
        stated = keys.get("preemption")
        if isinstance(stated, Mapping):
            known = [one.name for one in fields(Preemption)]
            if unknown := [key for key in stated if key not in known]:
                hint = suggestion(unknown[0], known)
                raise InputError(f"preemption: unknown key {unknown[0]!r}; {hint}")
            keys = {**keys, "preemption": Preemption(**stated)}
        return Pool(**keys)
    except InputError as error:
        named = f"pool {keys.get('name')!r}: "
        text = str(error)
        if text.startswith(named):  # The place names the pool: pools.a.weight is ...
            raise InputError(f"{where}.{text.removeprefix(named)}") from None
        raise InputError(f"{where}: {text}") from None


def check_kinds(pools: Iterable[Pool], known: Iterable[str]) -> None:
    """InputError for a share of a kind that no host and no phase has."""
    kinds = {ANY_KIND: None, **dict.fromkeys(known)}
    for pool in pools:
        for name, shares in ("slots_min", pool.slots_min), ("slots_max", pool.slots_max):
            for kind in shares:
                if kind not in kinds:
                    raise InputError(
                        f"pool {pool.name!r}: {name} has the kind {kind!r}, which no host and"
                        f" no phase has; {suggestion(kind, kinds)}"
                    )


def check_resources(pools: Iterable[Pool], known: Iterable[str]) -> None:
    """InputError for a limit of a resource that no host has and no phase requests."""
    for what in unknown_resources(pools, known):
        raise InputError(what)


def unknown_resources(pools: Iterable[Pool], known: Iterable[str]) -> Iterator[str]:
    """What to say of each limit of a resource that no host has and no phase requests."""
    names = {MEMORY: None, GPU: None, **dict.fromkeys(known)}
    for pool in pools:
        for name in pool.resources_max:
            if name not in names:
                yield (
                    f"pool {pool.name!r}: resources_max has {name!r}, which no host has and no"
                    f" phase requests; {suggestion(name, names)}"
                )


# Pools within pools: a forest whose leaves hold the jobs.


class ShareKey(NamedTuple):
    """The name of a share: the pool, and the kinds of phases that count against it.

    `kind` is a kind of phase, or "task" for all kinds without a share of their own.
    """

    pool: str
    kind: str


class PoolTree(Mapping[str, Pool]):
    """The pools by name, and how they are nested. Immutable.

    InputError for a duplicate name, an unknown parent, a circle of parents, a policy other than
    "fair" for a pool of pools, and shares that do not match the kinds of a parent.
    """

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        self._pools: dict[str, Pool] = {}
        for pool in pools:
            if pool.name in self._pools:
                raise InputError(f"two pools are named {pool.name!r}; rename one")
            self._pools[pool.name] = pool
        self._paths: dict[str, tuple[Pool, ...]] = {}
        self._kinds_above: dict[str, frozenset[str]] = {}
        self._shares: dict[tuple[str, str], tuple[ShareKey, ...]] = {}
        for name in self._pools:
            self._find_path(name)
        self.inner = frozenset(p.parent for p in self._pools.values() if p.parent is not None)
        for name in self._pools:
            self._check(name)

    def __getitem__(self, name: str) -> Pool:
        return self._pools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pools)

    def __len__(self) -> int:
        return len(self._pools)

    def path(self, name: str) -> tuple[Pool, ...]:
        """The pools from the top down to this one."""
        return self._paths[name]

    def shares(self, name: str, kind: str) -> tuple[ShareKey, ...]:
        """The shares that a phase of this kind in this pool counts against, from the top down.

        If a pool separates kinds, so do all pools below it: the shares are a forest, too.
        """
        if found := self._shares.get((name, kind)):
            return found
        keys, apart = [], False
        for pool in self._paths[name]:
            apart = apart or kind in pool.kinds
            keys.append(ShareKey(pool.name, kind if apart else ANY_KIND))
        self._shares[name, kind] = found = tuple(keys)
        return found

    def preemption(self, name: str) -> TimeOuts | None:
        """How this pool takes slots back: each number is its own, or of the nearest one above.

        None if none of these pools states anything.
        """
        stated = [p.preemption for p in self._paths[name] if p.preemption is not None]
        if not stated:
            return None
        return TimeOuts(**reduce(lambda outer, inner: inner.within(outer), stated).stated())

    @cached_property
    def unpreemptible(self) -> frozenset[str]:
        """The pools in which no task is stopped for a pool or a job."""
        return frozenset(
            name
            for name, path in self._paths.items()
            if not all(pool.preemptible for pool in path)
        )

    @cached_property
    def stop_limits(self) -> Mapping[str, int]:
        """`stops_per_hour` of the pools that have a limit: their own, or the nearest above."""
        return {
            name: limits[-1]
            for name, path in self._paths.items()
            if (limits := [p.stops_per_hour for p in path if p.stops_per_hour is not None])
        }

    def with_pools(self, names: Iterable[str]) -> PoolTree:
        """This tree, plus a default pool for each missing name. InputError for inner pools."""
        wanted = dict.fromkeys(names)
        for name in wanted:
            self.check_holds_jobs(name)
        return PoolTree([*self._pools.values(), *(Pool(n) for n in wanted if n not in self)])

    def on(self, cluster: Cluster) -> PoolTree:
        """This tree, in which shares in percent are slots of this cluster."""
        return PoolTree(pool.on(cluster) for pool in self._pools.values())

    def with_preemption(self, preemption: Preemption) -> PoolTree:
        """This tree, in which the pools at the top inherit what they do not state from this."""
        return PoolTree(
            replace(pool, preemption=(pool.preemption or Preemption()).within(preemption))
            if pool.parent is None
            else pool
            for pool in self._pools.values()
        )

    def check_slots(
        self, name: str, kind: str, slots: int, what: str = "each task occupies"
    ) -> None:
        """InputError if a task of this kind and number of slots exceeds a max share.

        `what` says of what the slots are, if not of a task.
        """
        for key in self.shares(name, kind):
            most = self[key.pool].max_share(key.kind)
            if 0 < most < slots:  # Jobs of a pool that is closed wait until it is opened.
                raise InputError(
                    f"{what} {slots} slots, but pool {key.pool!r} may hold at most"
                    f" {most:g} (slots_max); give the pool more, or the task fewer"
                )

    def check_needs(
        self, name: str, needs: Resources, what: str = "each task requests"
    ) -> None:
        """InputError if what a task requests beside slots exceeds a limit of its pools.

        `what` says of what the request is, if not of a task.
        """
        for pool in self.path(name) if needs else ():
            for resource, most in pool.resources_max.items():
                if needs.get(resource, 0) > most:
                    asked, may = (
                        amount_text(resource, amount) for amount in (needs[resource], most)
                    )
                    raise InputError(
                        f"{what} {resource} {asked}, but pool {pool.name!r} may hold at most"
                        f" {may} (resources_max); give the pool more, or the task less"
                    )

    def check_holds_jobs(self, name: str) -> None:
        """InputError if the pool has pools below it, and so cannot hold jobs."""
        if name in self.inner:
            below = sorted(p.name for p in self._pools.values() if p.parent == name)
            raise InputError(
                f"pool {name!r} has pools below it and holds no jobs itself;"
                f" name one of: {', '.join(below)}"
            )

    @cached_property
    def depth(self) -> int:
        """The number of pools on the longest path from the top; 0 without pools."""
        return max((len(path) for path in self._paths.values()), default=0)

    def _find_path(self, name: str) -> None:
        """Store the paths to a pool and to the pools that contain it, unless already stored."""
        way: dict[str, Pool] = {}
        parent: str | None = name
        while parent is not None and parent not in self._paths:
            if parent in way:
                raise InputError(
                    f"pool {parent!r} lies within itself; remove one `parent` of"
                    f" {', '.join(way)}"
                )
            if parent not in self._pools:
                raise InputError(
                    f"pool {next(reversed(way))!r}: unknown parent {parent!r};"
                    f" {suggestion(parent, sorted(self._pools))}"
                )
            way[parent] = self._pools[parent]
            parent = way[parent].parent
        for pool in reversed(way.values()):
            above: tuple[Pool, ...] = ()
            kinds: frozenset[str] = frozenset()
            if pool.parent is not None:
                above = self._paths[pool.parent]
                kinds = self._kinds_above[pool.parent] | above[-1].kinds
            self._paths[pool.name], self._kinds_above[pool.name] = (*above, pool), kinds

    def _check(self, name: str) -> None:
        pool = self._pools[name]
        if name in self.inner and pool.policy != "fair":
            raise InputError(
                f"pool {name!r}: policy is {pool.policy!r}, but pools within a pool share by"
                " weight; remove it, or give it to the pools below"
            )
        missing = sorted(self._kinds_above[name] - pool.kinds - {ANY_KIND})
        if ANY_KIND in pool.kinds and missing:
            raise InputError(
                f"pool {name!r} has shares for all kinds together, but a pool above it has"
                f" separate shares for {', '.join(missing)}; give its shares by kind, too"
            )


# Whether the tasks of a job can run at all, on some host and within shares of pools.


def check_fits(job: Job, cluster: Cluster, pools: PoolTree, later: Iterable[Host] = ()) -> None:
    """InputError, with job and phase, if a task or a gang takes more slots than it can get.

    Only phases that take more than one slot at once are checked: there is a slot for all
    others. A gang may also use hosts that come `later`.
    """
    for phase in job.phases:
        if phase.unit > 1 or phase.needs or phase.hosts:
            request, where = (phase.slots, phase.needs), ""
            try:
                served, joining = cluster, later
                if phase.hosts:
                    served, joining = _on_hosts_of(phase, cluster, later)
                    where = f", which runs only on {', '.join(sorted(phase.hosts))}"
                served.check_task(phase.kind, *request, are_named=bool(phase.hosts))
                if phase.gang:
                    _with(served, joining).check_gang(phase.kind, phase.tasks.count, *request)
                if job.pool in pools:
                    _check_share(job, phase, pools)
            except InputError as error:
                what = f"job {job.id!r}, phase {phase.name!r}{where}"
                raise InputError(f"{what}: {error}") from None


def check_open(job: Job, pools: PoolTree, user: str | None = None, when: str = "") -> None:
    """InputError, with job and pool, if a pool of the job is closed: it would wait forever.

    `user` has the jobs that state none. `when` says when the pools are these.
    """
    for pool in pools.path(job.pool):
        if why := next(why_closed(pool, job, job.user or user, pools), ""):
            raise InputError(
                f"job {job.id!r}: pool {pool.name!r} is closed{when}, because its {why}; open"
                " it, or name another pool"
            )


def why_closed(pool: Pool, job: Job, user: str | None, pools: PoolTree) -> Iterator[str]:
    """The reasons why a pool lets a job not run."""
    if pool.jobs_max == 0:
        yield "jobs_max is 0"
    if pool.jobs_max_of(user) == 0:
        yield f"jobs_max_per_user is 0 for {user}"
    for phase in job.phases:
        for name, kind in pools.shares(job.pool, phase.kind):
            if name == pool.name and pool.max_share(kind) == 0:
                of_kind = "" if kind == ANY_KIND else f" of kind {kind!r}"
                yield (
                    f"slots_max{of_kind} is 0"
                    if pool.weight
                    else (f"weight is 0 and it has no min share{of_kind}")
                )


def _on_hosts_of(
    phase: Phase, cluster: Cluster, later: Iterable[Host]
) -> tuple[Cluster, Sequence[Host]]:
    """The hosts on which the tasks of a phase may run; InputError if they have no slot."""
    names = ", ".join(sorted(phase.hosts))
    present = tuple(host for host in cluster.hosts if host.name in phase.hosts)
    awaited = [host for host in later if host.name in phase.hosts]
    kind = cluster.slot_kind(phase.kind)
    if not any(host.slots.get(kind) for host in (*present, *awaited)):
        known = ", ".join(host.name for host in cluster.hosts) or "none"
        what = f"has slots of kind {kind!r}" if present or awaited else "is in the cluster"
        raise InputError(
            f"its tasks run only on hosts {names}, and none of these {what}, whose hosts are"
            f" {known}; correct `hosts`, or add a host"
        )
    return replace(cluster, hosts=present, kinds=frozenset(cluster.capacity)), awaited


def _check_share(job: Job, phase: Phase, pools: PoolTree) -> None:
    if phase.gang:
        pools.check_slots(job.pool, phase.kind, phase.unit, "the tasks of a gang hold")
        together = phase.needs.scaled(phase.tasks.count)
        pools.check_needs(job.pool, together, "the tasks of a gang request")
    else:
        pools.check_slots(job.pool, phase.kind, phase.slots)
        pools.check_needs(job.pool, phase.needs)


def _with(cluster: Cluster, later: Iterable[Host]) -> Cluster:
    hosts = {host.name: host for host in later} | dict(cluster.by_name)
    return replace(cluster, hosts=tuple(hosts.values()))
