"""Options that several commands share, in groups; a command receives a group as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.core.errors import InputError
from slotwise.core.files import is_same_file
from slotwise.core.job import Shuffle
from slotwise.core.objective import PENALTIES, Objective
from slotwise.core.pools import Preemption
from slotwise.core.state import ATTEMPTS_MAX
from slotwise.insight.report.page import check_report
from slotwise.policy.scheduler import ASSIGNERS, EPOCH_SECONDS
from slotwise.running import Options
from slotwise.sources import Slots, Source


class _Command(TyperCommand):
    """A command whose help has no type for options without a value."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class _Group(TyperGroup):
    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class Application(typer.Typer):
    """Commands in a group."""

    def __init__(self, **named: Any) -> None:
        super().__init__(cls=_Group, **named)

    def command(
        self, name: str | None = None, **named: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """A decorator for a function that becomes a command."""
        return super().command(name, cls=_Command, **named)


def _without_types(parameters: Any) -> Any:
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
SlotsText = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="N",
        help="Slots instead of the cluster's or all cores; or by kind: map=2,reduce=1.",
    ),
]
Penalty = Annotated[
    str | None,
    typer.Option("--objective", help=f"{', '.join(PENALTIES)}; instead of the workload's."),
]
AggregateName = Annotated[str | None, typer.Option("--aggregate", help="sum or max.")]


@dataclass(frozen=True)
class Scheduling:
    """How a run is scheduled, on either backend."""

    assigner: Annotated[str, typer.Option(help=f"{', '.join(ASSIGNERS)}.")] = "greedy"
    waits: Annotated[
        str | None,
        typer.Option(
            help="Waits of delay or flow in seconds, for slots in the rack and any slot: 5,10."
        ),
    ] = None
    levels: Annotated[
        str | None,
        typer.Option(
            help="For delay and flow: persist or restart, after a launch away from its input."
        ),
    ] = None
    core_cost: Annotated[
        float | None,
        typer.Option(help="For flow: the cost of a byte between racks, within a rack it is 1."),
    ] = None
    move_within: Annotated[
        float | None,
        typer.Option(
            help="For flow: seconds for which a task may still move to a slot near its input."
        ),
    ] = None
    preempt: Annotated[
        str | None,
        typer.Option(
            help="When pools reclaim slots, in seconds: least=5,fair=30; also fraction=0.5,"
            " grace=2."
        ),
    ] = None
    slow_start: Annotated[
        float | None,
        typer.Option(help="Fraction of maps done before reduces may begin to copy: 0.05."),
    ] = None
    split_copies: Annotated[
        bool | None, typer.Option(help="Copy in separate slots, not in those that compute.")
    ] = None
    budget_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="Seconds that flex, flowflex or dmrs-best may search per decision."
        ),
    ] = None
    epoch: Annotated[float, typer.Option(help="Seconds between allocation decisions.")] = (
        EPOCH_SECONDS
    )
    attempts: Annotated[int, typer.Option(min=1, help="Maximum attempts of a task.")] = (
        ATTEMPTS_MAX
    )
    objective: Penalty = None
    aggregate: AggregateName = None

    def options(self, source: Source, log: Path | None) -> Options:
        """The options for this workload, in the form that slotwise.api takes."""
        return Options(
            assigner=self.assigner,
            waits=parse_waits(self.waits),
            levels=self.levels,
            core_cost=self.core_cost,
            move_within=self.move_within,
            preemption=parse_preemption(self.preempt),
            shuffle=self._shuffle(source),
            budget_seconds=self.budget_seconds,
            epoch_seconds=self.epoch,
            attempts_max=self.attempts,
            objective=objective_asked(source, self.objective, self.aggregate),
            log=log,
        )

    def _shuffle(self, source: Source) -> Shuffle | None:
        """The workload's shuffle with the given options applied; None without options."""
        asked = {"slow_start": self.slow_start, "split": self.split_copies}
        given: dict[str, Any] = {key: v for key, v in asked.items() if v is not None}
        return replace(source.shuffle or Shuffle(), **given) if given else None


@dataclass(frozen=True)
class SimulationOptions:
    """How the simulated cluster differs from the data that the scheduler gets."""

    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the simulation; same seed, same log.")
    ] = 0
    noise: Annotated[
        float, typer.Option(min=0, max=10, help="Spread of true durations around estimates.")
    ] = 0.0
    remote_factor: Annotated[
        float, typer.Option(min=1, help="Factor of duration for tasks with remote input.")
    ] = 1.0
    rack_factor: Annotated[
        float | None, typer.Option(min=1, help="The same within a rack [default: as remote].")
    ] = None
    save_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds that a task asked to stop needs to save its work."),
    ] = None
    true_speed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=SPEED",
            help="True speed of a host, hidden from the scheduler; may be repeated.",
        ),
    ] = None
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=AT+SECONDS",
            help="Outage of a host: h1=60+30 is 30 s long from 60 s; may be repeated.",
        ),
    ] = None

    hide_work: Annotated[
        bool,
        typer.Option(
            "--hide-work",
            help="Hide the work of tasks from the scheduler, which measures finished tasks.",
        ),
    ] = False

    def refuse_live(self) -> None:
        """Raise InputError for options that apply only to simulations."""
        given = [
            f"--{option.name.replace('_', '-')}"
            for option in fields(self)
            if getattr(self, option.name) not in (option.default, [])
        ]
        if given:
            raise InputError(
                f"{', '.join(given)}: for simulations only; leave it out, or leave out --live"
            )

    def simulation(self) -> Simulation:
        """The options in the form that the simulated backend takes."""
        return Simulation(
            self.seed,
            self.noise,
            self.remote_factor,
            self.rack_factor,
            save_seconds=self.save_seconds,
            speeds=parse_speeds(self.true_speed or ()),
            outages=tuple(map(parse_outage, self.outage or ())),
            hide_work=self.hide_work,
        )


@dataclass(frozen=True)
class OutputOptions:
    """Where a command writes, and the format of its output."""

    log: Annotated[Path | None, typer.Option(help="File for the log (JSON Lines).")] = None
    report: Annotated[Path | None, typer.Option(help="File for a report (HTML).")] = None
    as_json: Json = False

    def check(self, file: Path) -> None:
        """Raise InputError for outputs that cannot be written or are the workload file."""
        for option, target in (("--log", self.log), ("--report", self.report)):
            if target is not None and is_same_file(target, file):
                raise InputError(
                    f"{option} is the workload file {str(file)!r}; name another file"
                )
        if self.report is not None:
            check_report(self.report)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group by all options of the group."""
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters
    groups = {name: hints[name] for name in parameters if is_dataclass(hints[name])}
    known = {name: tuple(f.name for f in fields(group)) for name, group in groups.items()}

    @wraps(command)
    def with_groups(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in known[name]})
        command(**given)

    flat: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        if name in groups:
            flat += _options_of(groups[name])
        else:
            flat.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
    with_groups.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return with_groups


def _options_of(group: Any) -> list[inspect.Parameter]:
    """The options of a group as parameters; each has a default."""
    hints = get_type_hints(group, include_extras=True)
    assert all(option.default is not MISSING for option in fields(group))
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=hints[option.name],
        )
        for option in fields(group)
    ]


def objective_asked(
    source: Source, penalty: str | None, aggregate: str | None
) -> Objective | None:
    """Return the objective of the options, or None.

    A penalty alone means its sum, or the maximum for makespan, as in Python.
    """
    if penalty is None and aggregate is None:
        return None
    if aggregate is None and penalty is not None:
        return Objective.named(penalty)
    return Objective(penalty or source.workload.objective.penalty, aggregate)  # type: ignore[arg-type]


# Parsers of options that are strings.


def parse_waits(text: str | None) -> tuple[float, float] | None:
    """Parse two numbers of seconds: 5,10. Raises InputError."""
    if text is None:
        return None
    try:
        rack, any_ = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--waits is {text!r}; expected two numbers of seconds, as in 5,10"
        ) from error
    return rack, any_


def parse_slots(text: str | None) -> Slots | None:
    """Parse a number of slots, or numbers by kind: map=2,reduce=1. Raises InputError."""
    if text is None:
        return None
    try:
        if "=" not in text:
            slots: Slots = int(text)
            is_good = int(text) >= 1
        else:
            slots = {kind: int(count) for kind, count in _pairs(text)}
            is_good = min(slots.values()) >= 0 < max(slots.values())
    except ValueError:
        is_good = False
    if not is_good:
        raise InputError(
            f"--slots is {text!r}; expected a number >= 1, or numbers by kind,"
            " as in map=2,reduce=1"
        )
    return slots


PREEMPT_KEYS = {
    "least": "least_after",
    "fair": "fair_after",
    "fraction": "fraction",
    "grace": "grace",
}
"""The keys of --preempt, and the fields of Preemption that they set."""


def parse_preemption(text: str | None) -> Preemption | None:
    """Parse some of least=5,fair=30,fraction=0.5,grace=2. Raises InputError."""
    if text is None:
        return None
    example = "as in least=5,fair=30,fraction=0.5,grace=2"
    try:
        given = {key: float(value) for key, value in _pairs(text)}
    except ValueError as error:
        raise InputError(f"--preempt is {text!r}; expected numbers, {example}") from error
    for key in given:
        if key not in PREEMPT_KEYS:
            known = ", ".join(PREEMPT_KEYS)
            raise InputError(f"--preempt has no key {key!r}; known: {known}, {example}")
    if not given.keys() & {"least", "fair"}:
        raise InputError(
            f"--preempt is {text!r}, by which pools never reclaim slots; add least or fair,"
            f" in seconds, {example}"
        )
    return Preemption(**{PREEMPT_KEYS[key]: value for key, value in given.items()})


def parse_outage(text: str) -> Outage:
    """Parse a host, and start and length of its outage: h1=60+30. Raises InputError."""
    host, _, times = text.rpartition("=")
    at, _, seconds = times.partition("+")
    try:
        if not host:
            raise ValueError
        return Outage(host, float(at), float(seconds))
    except ValueError as error:
        raise InputError(
            f"--outage is {text!r}; expected a host, an instant and seconds, as in h1=60+30"
        ) from error


def parse_speeds(options: Iterable[str]) -> dict[str, float]:
    """Parse true speeds of hosts: h1=0.5. Raises InputError."""
    speeds: dict[str, float] = {}
    for text in options:
        host, _, speed = text.rpartition("=")
        try:
            if not host or host in speeds:
                raise ValueError
            speeds[host] = float(speed)
        except ValueError as error:
            raise InputError(
                f"--true-speed is {text!r}; expected each host once with its speed,"
                " as in h1=0.5"
            ) from error
    return speeds


def _pairs(text: str) -> list[tuple[str, str]]:
    """Split into keys and values; ValueError for an invalid pair or a duplicate key."""
    pairs = [(key.strip(), value) for key, value in (p.split("=") for p in text.split(","))]
    if len({key for key, _ in pairs}) < len(pairs) or not all(key for key, _ in pairs):
        raise ValueError
    return pairs
