"""Options that several commands share, in groups; a command receives a group as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from slotwise.backends.simulated.simulation import Outage, Simulation
from slotwise.cli.parsing import Json, expecting, pairs, seconds_option
from slotwise.core.errors import SHORTER, InputError, suggestion
from slotwise.core.files import is_same_file
from slotwise.core.job import Shuffle
from slotwise.core.objective import PENALTIES, Objective
from slotwise.core.pools import Preemption
from slotwise.core.units import seconds_or_duration
from slotwise.insight.report.page import check_report
from slotwise.running import Options, RunOptions
from slotwise.sources import Slots, Source

SlotsText = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="N",
        help="Slots instead of the cluster's or all cores; or by kind: map=2,reduce=1.",
    ),
]
ResourcesText = Annotated[
    str | None,
    typer.Option(
        "--resources",
        metavar="AMOUNTS",
        help="Resources of the host beside slots, by name: memory=6GiB,gpu=1.",
    ),
]
Penalty = Annotated[
    str | None,
    typer.Option("--objective", help=f"{', '.join(PENALTIES)}; instead of the workload's."),
]
AggregateName = Annotated[str | None, typer.Option("--aggregate", help="sum or max.")]


def _described(name: str, kind: Any = None, form: str = "") -> Any:
    """The annotation of an option for a field of `RunOptions`, of its type or another one."""
    own, about, *least = get_args(HINTS[name])
    about, lowest = about + form, least[0] if least else None
    if name in DURATIONS:
        return Annotated[own, seconds_option(about, lowest)]
    return Annotated[own if kind is None else kind, typer.Option(help=about, min=lowest)]


DURATIONS = ("epoch_seconds", "move_within", "budget_seconds", "retry_delay", "time_limit")
"""The fields of `RunOptions` that are seconds."""


HINTS = get_type_hints(RunOptions, include_extras=True)

FORMS: dict[str, dict[str, Any]] = {
    name: {SHORTER.get(name, name): _described(name)} for name in HINTS
}
FORMS |= {
    "waits": {"waits": _described("waits", str | None, " For example 5,10.")},
    "objective": {"objective": Penalty, "aggregate": AggregateName},
    "preemption": {
        "preempt": _described(
            "preemption",
            str | None,
            " In seconds >= 0: least=5,fair=30,jobs=60; also fraction=0.5, up to 1, and"
            " grace=2.",
        )
    },
    "shuffle": {
        "slow_start": Annotated[
            float | None,
            typer.Option(
                help="Fraction of maps done before reduces may begin to copy, from 0 to 1."
            ),
        ],
        "split_copies": Annotated[
            bool | None,
            typer.Option(help="Copy in separate slots, not in those that compute."),
        ],
    },
    "keep": {
        "keep": Annotated[
            bool | None, typer.Option("--keep/--no-keep", help=get_args(HINTS["keep"])[1])
        ]
    },
    "log": {},
    "progress": {},
}
"""The options for each field of `RunOptions`; some have other types on the command line."""


class Scheduling:
    """How a run is scheduled, on either backend: the options for `RunOptions`."""

    def __init__(self, **given: Any) -> None:
        self._given = given

    def with_defaults(self, defaults: Mapping[str, Any], stated: Container[str]) -> Scheduling:
        """These options, where those that are not `stated` have other defaults."""
        other = {name: value for name, value in defaults.items() if name not in stated}
        return Scheduling(**{name: other.get(name, self._given[name]) for name in self._given})

    @staticmethod
    def parameters() -> Iterator[tuple[str, Any, Any]]:
        """The name, annotation and default of each option."""
        for one in fields(RunOptions):
            for name, annotation in FORMS[one.name].items():
                yield name, annotation, one.default

    def options(self, source: Source, log: Path | None) -> Options:
        """The options for this workload, in the form that slotwise.api takes."""
        given = self._given
        same = {name: given[option] for name, forms in FORMS.items() for option in forms}
        asked = {"slow_start": given["slow_start"], "split": given["split_copies"]}
        changed = {key: value for key, value in asked.items() if value is not None}
        with _as_option({"shuffle: slow_start": "--slow-start"}):
            shuffle = replace(source.shuffle or Shuffle(), **changed) if changed else None
        options: Any = same | {
            "waits": parse_waits(given["waits"]),
            "objective": objective_asked(source, given["objective"], given["aggregate"]),
            "preemption": parse_preemption(given["preempt"]),
            "shuffle": shuffle,
            "log": log,
        }
        return options  # type: ignore[no-any-return]


class OptionGroup:
    """Options as the fields of a dataclass, with their annotations and defaults."""

    @classmethod
    def parameters(cls) -> Iterator[tuple[str, Any, Any]]:
        """The name, annotation and default of each option."""
        hints = get_type_hints(cls, include_extras=True)
        return ((one.name, hints[one.name], one.default) for one in fields(cls))  # type: ignore[arg-type]


@dataclass(frozen=True)
class SimulationOptions(OptionGroup):
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
        seconds_option("Seconds that a task asked to stop needs to save its work.", 0),
    ] = None
    true_speed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=SPEED",
            help="True speed of a host, above 0, hidden from the scheduler; may be repeated.",
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
class OutputOptions(OptionGroup):
    """Where a command writes, and the format of its output."""

    log: Annotated[Path | None, typer.Option(help=get_args(HINTS["log"])[1])] = None
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
    flat: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        options = [(parameter.name, kind, parameter.default)]
        if hasattr(kind, "parameters"):
            options = list(kind.parameters())
            groups[parameter.name] = kind, [name for name, *_ in options]
        flat += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, annotation, default in options
        ]

    @wraps(command)
    def with_groups(**given: Any) -> None:
        for name, (group, options) in groups.items():
            given[name] = group(**{option: given.pop(option) for option in options})
        command(**given)

    with_groups.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    return with_groups


def objective_asked(
    source: Source, penalty: str | None, aggregate: str | None
) -> Objective | None:
    """Return the objective of the options, or None.

    A penalty alone means its sum, or the maximum for makespan, as in Python.
    """
    if penalty is None and aggregate is None:
        return None
    with _as_option({"objective: aggregate": "--aggregate", "objective:": "--objective:"}):
        if aggregate is None and penalty is not None:
            return Objective.named(penalty)
        stated = source.workload.objective.penalty if penalty is None else penalty
        return Objective(stated, aggregate)  # type: ignore[arg-type]


# Parsers of options that are strings.


@contextmanager
def _as_option(names: Mapping[str, str]) -> Iterator[None]:
    """Name options as on the command line: an InputError that begins with a key of `names`."""
    try:
        yield
    except InputError as error:
        text = str(error)
        for begin, option in names.items():
            if text.startswith(begin):
                raise InputError(option + text.removeprefix(begin)) from error
        raise


def parse_waits(text: str | None) -> tuple[float, float] | None:
    """Parse two numbers of seconds: 5,10. Raises InputError."""
    if text is None:
        return None
    with expecting("--waits", text, "two numbers of seconds, as in 5,10, or durations"):
        rack, any_ = map(seconds_or_duration, text.split(","))
    return rack, any_


def parse_slots(text: str | None) -> Slots | None:
    """Parse a number of slots, or numbers by kind: map=2,reduce=1. Raises InputError."""
    if text is None:
        return None
    expected = "a number >= 1, or numbers by kind, as in map=2,reduce=1"
    with expecting("--slots", text, expected):
        kinds = {kind: int(count) for kind, count in pairs(text)} if "=" in text else {}
        counts = kinds.values() or [int(text)]
        if not min(counts) >= 0 < max(counts):
            raise ValueError
    return kinds or max(counts)


PREEMPT_KEYS = {
    "least": "least_after",
    "fair": "fair_after",
    "jobs": "jobs_after",
    "fraction": "fraction",
    "grace": "grace",
}
"""The keys of --preempt, and the fields of Preemption that they set."""


def parse_preemption(text: str | None) -> Preemption | None:
    """Parse some of least=5,fair=30,fraction=0.5,grace=2. Raises InputError."""
    if text is None:
        return None
    example = "as in least=5,fair=30,fraction=0.5,grace=2"
    with expecting("--preempt", text, f"numbers, {example}"):
        given = {
            key: float(value) if key == "fraction" else seconds_or_duration(value)
            for key, value in pairs(text)
        }
    for key in given:
        if key not in PREEMPT_KEYS:
            hint = suggestion(key, PREEMPT_KEYS)
            raise InputError(f"--preempt has no key {key!r}; {hint}, {example}")
    if not given.keys() & {"least", "fair", "jobs"}:
        raise InputError(
            f"--preempt is {text!r}, by which pools never reclaim slots; add least, fair or"
            f" jobs, in seconds, {example}"
        )
    names = {f"preemption: {field}": f"--preempt: {key}" for key, field in PREEMPT_KEYS.items()}
    with _as_option(names):
        stated: dict[str, Any] = {PREEMPT_KEYS[key]: value for key, value in given.items()}
        return Preemption(**stated)


def parse_outage(text: str) -> Outage:
    """Parse a host, and start and length of its outage: h1=60+30. Raises InputError."""
    host, _, times = text.rpartition("=")
    at, _, seconds = times.partition("+")
    with expecting("--outage", text, "a host, an instant and seconds, as in h1=60+30"):
        if not host:
            raise ValueError
        outage = Outage(host, seconds_or_duration(at), seconds_or_duration(seconds))
    return outage


def parse_speeds(options: Iterable[str]) -> dict[str, float]:
    """Parse true speeds of hosts: h1=0.5. Raises InputError."""
    speeds: dict[str, float] = {}
    for text in options:
        host, _, speed = text.rpartition("=")
        expected = "each host once with its speed, as in h1=0.5"
        with expecting("--true-speed", text, expected):
            if not host or host in speeds:
                raise ValueError
            speeds[host] = float(speed)
    return speeds
