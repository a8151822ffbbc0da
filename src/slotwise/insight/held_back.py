"""What held a job back: its life in intervals, with the reason of each, from the log of a run.

The state is followed through the log, as for an explanation of one instant. After each turn
the cause for which the job holds no more slots is noted (`why.limit_of`). Times with the same
cause are one interval; the shortest ones are joined until few are left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from slotwise.core.errors import InputError
from slotwise.core.events import Event, OutputLost, TaskFailed, TaskFinished, TaskKilled
from slotwise.core.job import PhaseId
from slotwise.core.log import Log
from slotwise.insight.intervals import Interval, JobExplained
from slotwise.insight.report.text import counted, seconds
from slotwise.insight.timeline import StepFunction, TimelineReducer
from slotwise.insight.waits import (
    MIN_PART,
    PART_WHOLE,
    HeldSlots,
    Holder,
    JobWaits,
    RetracedRun,
)
from slotwise.insight.why import (
    ALONE,
    NOT_LIMITED,
    Cause,
    could_start,
    limit_of,
    unknown_job,
)

MAX_INTERVALS = 15
"""The maximum number of intervals of a job."""

SHORT = 0.005
"""Intervals shorter than this part of the life of a job are joined with others."""

_MAX_FOLLOWED = 64
"""The number of intervals that are stored while a log is read."""

_NO_LOSS = 0.01
"""A job that lost less than this part of its response to limits was not held back."""

_Key = tuple[str, str]
"""The kind and place of a cause."""


def explain_job(log: Log, job: str) -> JobExplained:
    """Explain what held a job from its arrival to its end, or to the end of the log.

    The log is read once, O(n log n) for n entries, plus O(phases of the job) for each turn of
    its life. InputError for a job that is not in it.
    """
    reducer, run = TimelineReducer(log.header), RetracedRun(log.header)
    fold, job_waits = _JobFold(reducer, run, job), JobWaits(job, reducer, run)
    for turn in log.turns:
        is_over = fold.is_over
        reducer(turn.now, turn.events, turn.decisions)
        if is_over and not job_waits.needs_rest:
            continue
        if not is_over:
            job_waits.pass_to(turn.now)
            fold.pass_to(turn.now, turn.events)
        run.follow(turn.now, turn.events, turn.decisions)
        if not is_over:
            job_waits.note(turn.now, turn.events)
            fold.note(turn.now)
    line = reducer.timeline(log.header.cluster)
    if job not in line.jobs:
        raise InputError(unknown_job(job, line.jobs))
    pieces, held = fold.pieces(line.end_of(job)), HeldSlots(line)
    steps = line.held_by_job.get(job, StepFunction())
    span, end = line.jobs[job], line.end_of(job)
    intervals = tuple(_interval(piece, job, held, steps) for piece in pieces)
    status = "completed" if span.completion is not None else fold.state_now
    return JobExplained(
        job=job,
        pool=span.job.pool,
        scheduler=run.scheduler,
        arrival=span.arrival,
        start=span.start,
        end=end,
        status="failed" if span.failed is not None else status,
        failure=span.failed or "",
        reason=fold.main_reason(end - span.arrival, intervals),
        intervals=intervals,
        waits=job_waits.explained(line, held),
    )


@dataclass(slots=True)
class _Piece:
    """A time of one or several causes; the seconds of each state and cause."""

    start: float
    end: float
    wanted: int
    slot_kind: str
    states: Counter[str]
    causes: dict[_Key, Cause]
    seconds: Counter[_Key]
    ends: Counter[str] = field(default_factory=Counter)

    def join(self, later: _Piece) -> None:
        """Add the next piece."""
        if later.end - later.start > self.end - self.start:
            self.slot_kind = later.slot_kind
        self.end, self.wanted = later.end, max(self.wanted, later.wanted)
        self.states += later.states
        self.causes = later.causes | self.causes
        self.seconds += later.seconds
        self.ends += later.ends


@dataclass(slots=True)
class _Total:
    """What a cause took: seconds, slot-seconds of the phase, most slots wanted, time lost."""

    cause: Cause
    seconds: float = 0.0
    area: float = 0.0
    held: int = 0
    wanted: int = 0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class _Now:
    """The condition of the job after a turn; `of_phase` are the slots of the phase meant."""

    state: str
    wanted: int
    cause: Cause
    phase: PhaseId
    slot_kind: str
    of_phase: tuple[int, int]


class _JobFold:
    """Follows the state of a run, and collects the pieces of the life of one job."""

    def __init__(self, reducer: TimelineReducer, run: RetracedRun, job: str) -> None:
        self._reducer, self._run, self._state, self._job = reducer, run, run.state, job
        self._at = 0.0
        self._end = inf  # unless it is over
        self._now: _Now | None = None
        self._pieces: list[_Piece] = []
        self._ends = Counter[str]()
        self._totals: dict[_Key, _Total] = {}
        self._took: defaultdict[PhaseId, list[float]] = defaultdict(list)
        self._last_phase: dict[_Key, PhaseId] = {}
        self.is_over = False

    @property
    def state_now(self) -> str:
        """The state of the job after the last turn."""
        return "waiting" if self._now is None else self._now.state

    def pass_to(self, now: float, events: Sequence[Event]) -> None:
        """Take a turn that the timeline has applied, and the state has not."""
        if self._job not in self._reducer.jobs:
            return
        end = self._reducer.end_of(self._job)
        self._end = inf if end is None else end
        if self._now is not None:
            for event in events:
                self._count(event)
            self._pass_to(now)

    def note(self, now: float) -> None:
        """Note the condition of the job after a turn."""
        if self._state.phases_of(self._job):
            if self._now is None:
                self._at = self._reducer.jobs[self._job].arrival
            self._now = self._condition()
        self.is_over = now > self._end

    def pieces(self, end: float) -> list[_Piece]:
        """The life of the job, joined to few pieces. Call it once, after the last turn."""
        self._end = end
        self._pass_to(end)
        if self._pieces:
            self._pieces[-1].ends += self._ends
        life = sum(piece.end - piece.start for piece in self._pieces)
        _join_shortest(self._pieces, MAX_INTERVALS, SHORT * life)
        return self._pieces

    def _count(self, event: Event) -> None:
        """Count an attempt of the job that ends without a result, or lost output."""
        if not isinstance(event, TaskFinished | TaskFailed | TaskKilled | OutputLost):
            return
        if event.phase.job != self._job or event.phase not in self._phases():
            return
        phase = self._state.phase(event.phase)
        if isinstance(event, OutputLost):
            self._ends["redone"] += sum(map(phase.is_done, event.tasks))
            return
        launch = phase.launches.get(event.task)
        if launch is None or launch[0].attempt != event.attempt:
            return  # A late or repeated event.
        if isinstance(event, TaskFinished):
            self._took[event.phase].append(event.seconds)
        elif isinstance(event, TaskKilled):
            self._ends["stopped"] += 1
        else:
            self._ends["lost" if event.lost or event.lacks_input else "failed"] += 1

    def _phases(self) -> set[PhaseId]:
        return {phase.id for phase in self._state.phases_of(self._job)}

    def _condition(self) -> _Now:
        state = self._state
        cause, phase = limit_of(state, self._job, self._run.scheduler, self._run.may_defer)
        phases = state.phases_of(self._job)
        wanted = sum(one.running + could_start(one) for one in phases)
        word = "running" if any(one.running for one in phases) else "waiting"
        if word == "waiting" and cause.kind in ("idle", "blocked"):
            word = "idle"
        most = min(phase.running + could_start(phase), state.capacity(phase.slot_kind))
        of_phase = phase.running, max(phase.running, most)
        return _Now(word, wanted, cause, phase.id, phase.slot_kind, of_phase)

    def _pass_to(self, now: float) -> None:
        """Add the time until `now` under the current condition."""
        start, end, one = self._at, min(now, self._end), self._now
        if one is None or end <= start:
            return
        key = (one.cause.kind, one.cause.place)
        self._at = end
        piece = _Piece(
            *(start, end, one.wanted, one.slot_kind),
            Counter({one.state: end - start}),
            {key: one.cause},
            Counter({key: end - start}),
            self._ends,
        )
        self._ends = Counter()
        self._add_to_total(key, one, end - start)
        last = self._pieces[-1] if self._pieces else None
        if last and last.seconds.keys() == {key} and last.states.keys() == {one.state}:
            last.join(piece)
            return
        self._pieces.append(piece)
        _join_shortest(self._pieces, _MAX_FOLLOWED)

    def _add_to_total(self, key: _Key, one: _Now, took: float) -> None:
        held, wanted = one.of_phase
        total = self._totals.setdefault(key, _Total(one.cause))
        total.seconds += took
        total.area += took * held
        total.held, total.wanted = max(total.held, held), max(total.wanted, wanted)
        if one.cause.kind not in NOT_LIMITED:
            total.lost += took * (1.0 - held / max(1, wanted))
        self._last_phase[key] = one.phase

    # The main reason.

    def main_reason(self, response: float, intervals: Sequence[Interval]) -> str:
        """The sentence on the cause that took most time from the job."""
        for key, total in self._totals.items():
            if key[0] == "last task":
                took, mean = self._last_and_mean(key)
                total.lost = max(0.0, min(total.seconds, took - mean))
        if not self._totals:
            return "it took no time"
        key, main = max(self._totals.items(), key=lambda one: (one[1].lost, one[1].seconds))
        if main.lost <= _NO_LOSS * response:
            key, main = max(self._totals.items(), key=lambda one: (one[1].seconds, one[0]))
            return f"nothing held it back; for {seconds(main.seconds)}, {main.cause.reason}"
        if key[0] == "max share":
            return self._at_max_share(key, main)
        if key[0] == "last task":
            took, mean = self._last_and_mean(key)
            return (
                f"for {seconds(main.seconds)}, {main.cause.reason}; it took {seconds(took)},"
                f" the others {seconds(mean)} on average"
            )
        mine = [one for one in intervals if one.limit == key[0] and one.holders]
        holders = max(mine, key=lambda one: one.seconds).holders if mine else ()
        named = f", behind {_listed(holders)}" if holders else ""
        return f"for {seconds(main.seconds)}, {main.cause.reason}{named}"

    def _at_max_share(self, key: _Key, main: _Total) -> str:
        longest = max(self._took[self._last_phase[key]], default=0.0)
        least = max(main.area / main.wanted, longest)
        what = (
            "it"
            if len({phase.phase for phase in self._last_phase.values()}) == 1
            else (f"phase {key[1]}")
        )
        return (
            f"{what} ran {seconds(main.seconds)} at its max share of"
            f" {counted(main.held, 'slot')}; with {main.wanted} slots it would need about"
            f" {seconds(least)}"
        )

    def _last_and_mean(self, key: _Key) -> tuple[float, float]:
        """The seconds of the last task of a phase, and the mean of the others."""
        *others, last = self._took[self._last_phase[key]] or [0.0]
        return last, sum(others) / len(others) if others else last


def _listed(holders: Sequence[Holder]) -> str:
    named = ", ".join(f"{one.job} (pool {one.pool})" for one in holders[:2])
    more = len(holders) - 2
    return named + (f" and {counted(more, 'other job')}" if more > 0 else "")


def _join_shortest(pieces: list[_Piece], most: int, shortest: float = 0.0) -> None:
    """Join each shortest piece with its shorter neighbour.

    Until at most `most` are left, and none is shorter than `shortest` seconds.
    """
    while len(pieces) > 1:
        lengths = [piece.end - piece.start for piece in pieces]
        at = min(range(len(pieces)), key=lengths.__getitem__)
        if len(pieces) <= most and lengths[at] >= shortest:
            return
        if at == len(pieces) - 1 or (at and lengths[at - 1] < lengths[at + 1]):
            at -= 1
        pieces[at].join(pieces.pop(at + 1))


def _interval(piece: _Piece, job: str, held: HeldSlots, steps: StepFunction) -> Interval:
    length = piece.end - piece.start
    order = sorted(piece.seconds, key=lambda key: (-piece.seconds[key], key))
    reasons = []
    for key in order:
        part = piece.seconds[key] / length
        if part >= MIN_PART:
            often = f"for {100 * part:.0f} % of the time, " if part < PART_WHOLE else ""
            reasons.append(often + piece.causes[key].reason)
    limit, state = order[0][0], piece.states.most_common(1)[0][0]
    # A job that held a slot for any time has not simply waited.
    is_one = state == "running" and piece.states[state] >= PART_WHOLE * length
    holders: tuple[Holder, ...] = ()
    if limit not in NOT_LIMITED | ALONE:
        holders, _ = held.others(job, piece.start, piece.end, piece.slot_kind)
    return Interval(
        start=piece.start,
        end=piece.end,
        state=state if is_one or len(piece.states) == 1 else "on and off",
        held=steps.area(piece.start, piece.end) / length,
        wanted=piece.wanted,
        limit=limit,
        reason="; ".join(reasons),
        holders=holders,
        **piece.ends,
    )
