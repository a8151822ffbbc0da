"""The data of explanations of the slots that jobs hold, and their form as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from html import escape
from math import isfinite
from typing import Any

from slotwise.insight.reasons import WhyWaiting

ORIGINS: Mapping[str, str] = {
    "measured": "from its done tasks",
    "stated": "as stated or known from earlier runs",
    "corrected": "from stated work, corrected by its error for other phases",
    "alike": "from phases that have been measured",
    "assumed": "by assumption, until enough phases have been measured",
}
"""Where estimates come from (`slotwise.core.phase_work.Origin`), in words."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """The work that a phase still has, as the allocator estimates it.

    work    slot-seconds at speed 1
    factor  at least 1: in two of three cases, the true work differs by at most this factor; 1
            for stated and measured work
    origin  where the estimate comes from: a key of `ORIGINS`
    """

    work: float
    factor: float
    origin: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another phase of the same pool: the slots that it holds and its allocation.

    work  estimated slot-seconds that its job has left, or None if they do not matter
    """

    job: str
    phase: str
    running: int
    allocated: float
    work: float | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """A job that holds slots for which another one waits; `running` is their number.

    amount  what it holds of the resource for which the other one waits instead, in words
    """

    job: str
    pool: str
    running: int
    amount: str = ""


@dataclass(frozen=True, slots=True)
class ShareExplained:
    """A pool's share of one kind of slot.

    share    slots that it was allocated, for all of its jobs
    running  slots that it holds on responsive hosts: only these are shared
    demand   slots that its jobs can use
    least    its min share; most: its max share, None without a limit
    lacks    a sentence if it is below its min share or its share; otherwise empty
    steady   its share under fair if all pools could use all slots
    """

    pool: str
    slot_kind: str
    share: float
    running: int
    demand: int
    least: float
    most: float | None
    lacks: str
    steady: float


@dataclass(frozen=True, slots=True)
class PhaseExplained:
    """One phase of the job: the slots that it holds, its allocation, and the reason (`why`).

    `shares` are those of its pools, the nearest first; `over` are other pools that hold more
    than their share of the same kind of slot. `before` and `after` are the nearest backlogged
    phases of its pool that are served before and after it. If hosts have queues, nothing is
    allocated: `allocated` is None, shares and neighbours are empty. `silent` counts the slots
    that it holds on unresponsive hosts, by host. `holders` are the jobs of any pool that hold
    slots of its kind while its tasks wait, or the resource that no host with free slots has for
    a task, the largest first; `holders_more` counts the others.
    `reserved` counts, by pool, the slots that other pools reclaim: free ones, and those of
    tasks that were asked to stop. `estimate` is None if the scheduler does not order jobs by
    their work, or no work is left.
    """

    phase: str
    slot_kind: str
    running: int
    silent: dict[str, int]
    leaving: dict[str, int]
    stopping: int
    pending: int
    done: int
    allocated: float | None
    most: int
    why: str
    shares: tuple[ShareExplained, ...]
    over: tuple[ShareExplained, ...]
    before: tuple[Neighbour, ...]
    after: tuple[Neighbour, ...]
    holders: tuple[Holding, ...] = ()
    holders_more: int = 0
    reserved: dict[str, int] = field(default_factory=dict)
    estimate: Estimated | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """A job at an instant: the slots that it holds, and why. `at` is in seconds.

    `waiting` sums it up for a job that is live, also as one sentence; None in a log, and of a
    job that is over. Its `str` is sentences, one on each line.
    """

    job: str
    at: float
    pool: str
    scheduler: str
    status: str
    phases: tuple[PhaseExplained, ...] = ()
    waiting: WhyWaiting | None = None

    def to_plain(self) -> dict[str, Any]:
        """As a JSON object; `waiting` is in it for a live job."""
        plain = asdict(self)
        if self.waiting is None:
            del plain["waiting"]
        elif start := self.waiting.start:
            plain["waiting"]["start"] = [at if isfinite(at) else None for at in start]
        return plain

    @classmethod
    def of_plain(cls, plain: Mapping[str, Any]) -> Explanation:
        """The explanation of what `to_plain` has returned; further keys are ignored.

        Of a job that is over a server knows the `job` and a `text` only.
        """
        known = {"at": 0.0, "pool": "", "scheduler": "", "status": plain.get("text", "")}
        known |= {one.name: plain[one.name] for one in fields(cls) if one.name in plain}
        if known.get("waiting"):
            known["waiting"] = WhyWaiting.of_plain(known["waiting"])
        return cls(**{**known, "phases": tuple(map(_phase_of, plain.get("phases", ())))})

    def lines(self) -> Iterator[str]:
        """Yield the slots that it holds and the reasons, one fact per line."""
        return explanation_lines(self)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


_PARTS = {
    "shares": ShareExplained,
    "over": ShareExplained,
    "before": Neighbour,
    "after": Neighbour,
    "holders": Holding,
}
"""The classes of the lists of a phase."""


def _phase_of(plain: Mapping[str, Any]) -> PhaseExplained:
    parts: dict[str, Any] = {
        name: tuple(made(**one) for one in plain.get(name, ())) for name, made in _PARTS.items()
    }
    estimate = plain.get("estimate")
    parts["estimate"] = None if estimate is None else Estimated(**estimate)
    return PhaseExplained(**{**plain, **parts})


@dataclass(frozen=True, slots=True)
class JobSummary:
    """The slots that a job holds, its waiting and done tasks, and why it holds no more slots.

    `reason` is empty if all its tasks run.
    """

    slots: int
    waiting: int
    done: int
    reason: str


def summary_of(job: Explanation) -> JobSummary:
    """Sum up the phases of a job."""
    slots = sum(phase.running for phase in job.phases)
    waiting = sum(phase.pending for phase in job.phases)
    done = sum(phase.done for phase in job.phases)
    reason = "" if slots else "all its tasks are done; more may come"
    if job.status.partition(";")[0] not in ("under way", "waits"):  # A promise may follow.
        reason = job.status
    elif waiting:
        reason = next(phase.why for phase in job.phases if phase.pending)
    return JobSummary(slots, waiting, done, reason)


def explanation_lines(explanation: Explanation, *, is_now: bool = False) -> Iterator[str]:
    """Yield the slots that a job holds at an instant and the reasons, one fact per line.

    `is_now` leaves out the instant: seconds since a server has started mean nothing to a user.
    """
    if not explanation.scheduler:  # A server knows no more of a job that is over.
        yield explanation.status
        return
    pool = f", in pool {explanation.pool}" if explanation.pool else ""
    at = "" if is_now else f" at {explanation.at:.6g} s"
    yield (
        f"{explanation.job or 'a call'}{at}{pool} under {explanation.scheduler}:"
        f" {explanation.status}"
    )
    if explanation.waiting is not None:
        yield f"  {explanation.waiting.in_words(explanation.at)}"
    for phase in explanation.phases:
        yield from _phase_lines(phase)


def _phase_lines(phase: PhaseExplained) -> Iterator[str]:
    stopping = f" ({phase.stopping} asked to stop)" if phase.stopping else ""
    allocated = "" if phase.allocated is None else f" of {phase.allocated:.6g}"
    responsive = phase.running - sum(phase.silent.values()) - sum(phase.leaving.values())
    slots = "slot" if (responsive, phase.allocated) == (1, None) else "slots"
    wait = "1 task waits" if phase.pending == 1 else f"{phase.pending} tasks wait"
    done = "1 is done" if phase.done == 1 else f"{phase.done} are done"
    yield (
        f"  {phase.phase}: holds {responsive}{stopping}{allocated} {slots} of"
        f" kind {phase.slot_kind}; {wait}, {done}"
    )
    yield f"    because {phase.why}"
    if phase.estimate is not None:
        yield f"    {_estimated(phase.estimate)}"
    if phase.silent:
        held = ", ".join(f"{count} on {host}" for host, count in phase.silent.items())
        yield f"    on unresponsive hosts: {held}"
    if phase.leaving:
        held = ", ".join(f"{count} on {host}" for host, count in phase.leaving.items())
        yield f"    on hosts that leave when their tasks have ended: {held}"
    for share in phase.shares:
        yield f"    pool {share.pool}: {_share(share)}"
    for share in phase.over:
        yield f"    above its share: pool {share.pool}, {_share(share)}"
    if phase.holders:
        holders = phase.holders
        held = ", ".join(f"{h.amount or h.running} by {h.job} (pool {h.pool})" for h in holders)
        more = f", others by {phase.holders_more} more jobs" if phase.holders_more else ""
        what = "what it waits for is" if holders[0].amount else "these slots are"
        yield f"    {what} held: {held}{more}"
    if phase.reserved:
        kept = ", ".join(f"{count} for pool {pool}" for pool, count in phase.reserved.items())
        yield f"    reserved for pools that reclaim them, now or when tasks stop: {kept}"
    if phase.before:
        yield f"    served before it in its pool: {_names(phase.before)}"
    if phase.after:
        yield f"    served after it: {_names(phase.after)}"


def _share(share: ShareExplained) -> str:
    limits = [f"min {share.least:g}"] if share.least else []
    limits += [] if share.most is None else [f"max {share.most:g}"]
    if round(share.steady - share.share, 6):
        limits.append(f"steady {share.steady:.6g}")
    text = f"holds {share.running} of its share of {share.share:.6g}, can use {share.demand}"
    text += f" ({', '.join(limits)})" if limits else ""
    return text + (f"; {share.lacks}" if share.lacks else "")


def _estimated(estimate: Estimated) -> str:
    within = f", within a factor of {estimate.factor:.2g}" if estimate.factor > 1 else ""
    origin = ORIGINS[estimate.origin]
    return f"its remaining work is estimated at {estimate.work:.4g} s{within}, {origin}"


def _names(neighbours: Sequence[Neighbour]) -> str:
    return ", ".join(map(_name, neighbours))


def _name(one: Neighbour) -> str:
    work = "" if one.work is None else f", {one.work:.4g} s of work left"
    return f"{one.job}/{one.phase} ({one.running} of {one.allocated:.4g}{work})"
