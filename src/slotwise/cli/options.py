"""Options that several commands share, in groups; a command takes a group as one value."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from slotwise.cli.option_texts import (
    parse_outage,
    parse_preemption,
    parse_speeds,
    parse_waits,
)
from slotwise.model.errors import InputError
from slotwise.model.shuffle import Shuffle
from slotwise.objective.objective import Objective
from slotwise.objective.penalty import PENALTIES
from slotwise.opening import is_same_file
from slotwise.report.page import check_report
from slotwise.running import Options
from slotwise.runtime.simulated.simulation import Simulation
from slotwise.scheduler import ASSIGNERS, EPOCH_SECONDS
from slotwise.sources import Source

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
SlotsText = Annotated[
    str | None,
    typer.Option(
        "--slots",
        metavar="N",
        help="Slots instead of the cluster's or all cores, by kind if wished: map=2,reduce=1.",
    ),
]
Penalty = Annotated[
    str | None,
    typer.Option("--objective", help=f"{', '.join(PENALTIES)}; instead of the workload's."),
]
AggregateName = Annotated[str | None, typer.Option("--aggregate", help="sum or max.")]


@dataclass(frozen=True)
class Scheduling:
    """How a run is scheduled, in either world."""

    assigner: Annotated[str, typer.Option(help=f"{', '.join(ASSIGNERS)}.")] = "greedy"
    waits: Annotated[
        str | None,
        typer.Option(help="Delay scheduling's waits in seconds, for the rack and any: 5,10."),
    ] = None
    preempt: Annotated[
        str | None,
        typer.Option(
            help="When pools take slots back, in seconds: least=5,fair=30,fraction=0.5,grace=2."
        ),
    ] = None
    slow_start: Annotated[
        float | None,
        typer.Option(help="Part of the maps after which reduces may begin to copy: 0.05."),
    ] = None
    split_copies: Annotated[
        bool | None, typer.Option(help="Copying has slots of its own, apart from computing.")
    ] = None
    budget_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="How long flex, flowflex or dmrs-best may search at a decision."
        ),
    ] = None
    epoch: Annotated[
        float, typer.Option(help="Seconds between decisions on the allocation.")
    ] = EPOCH_SECONDS
    attempts: Annotated[int, typer.Option(min=1, help="How often a task is tried.")] = 4
    objective: Penalty = None
    aggregate: AggregateName = None

    def options(self, source: Source, log: Path | None) -> Options:
        """As the functions of slotwise.api take them, for this workload."""
        return Options(
            assigner=self.assigner,
            waits=parse_waits(self.waits),
            preemption=parse_preemption(self.preempt),
            shuffle=self._shuffle(source),
            budget_seconds=self.budget_seconds,
            epoch_seconds=self.epoch,
            attempts_max=self.attempts,
            objective=objective_asked(source, self.objective, self.aggregate),
            log=log,
        )

    def _shuffle(self, source: Source) -> Shuffle | None:
        """The workload's with what was asked for in its place; None if nothing was."""
        asked = {"slow_start": self.slow_start, "split": self.split_copies}
        given: dict[str, Any] = {key: v for key, v in asked.items() if v is not None}
        return replace(source.shuffle or Shuffle(), **given) if given else None


@dataclass(frozen=True)
class Truth:
    """How the simulated cluster differs from what the scheduler is told."""

    seed: Annotated[int, typer.Option(min=0, help="Same seed, same truth, same log.")] = 0
    noise: Annotated[
        float, typer.Option(min=0, max=10, help="Spread of true durations around estimates.")
    ] = 0.0
    remote_factor: Annotated[
        float, typer.Option(min=1, help="How much longer a task takes that reads from afar.")
    ] = 1.0
    rack_factor: Annotated[
        float | None, typer.Option(min=1, help="The same within a rack [default: as afar].")
    ] = None
    save_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="What a task told to stop needs to keep what it has done."),
    ] = None
    true_speed: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=SPEED",
            help="A host's true speed, which the scheduler is not told; may be repeated.",
        ),
    ] = None
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=AT+SECONDS",
            help="A host is cut off: h1=60+30, from 60 s on for 30 s; may be repeated.",
        ),
    ] = None

    def refuse_live(self) -> None:
        """Refuse options that mean nothing where programs really run."""
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
        """As the simulated world takes it."""
        return Simulation(
            self.seed,
            self.noise,
            self.remote_factor,
            self.rack_factor,
            save_seconds=self.save_seconds,
            speeds=parse_speeds(self.true_speed or ()),
            outages=tuple(map(parse_outage, self.outage or ())),
        )


@dataclass(frozen=True)
class Output:
    """Where a command writes, and what it prints."""

    log: Annotated[Path | None, typer.Option(help="Write the log here (JSON Lines).")] = None
    report: Annotated[Path | None, typer.Option(help="Write a page here (HTML).")] = None
    as_json: Json = False

    def check(self, file: Path) -> None:
        """Refuse, before anything begins, to write where it cannot be or over the workload."""
        for option, target in (("--log", self.log), ("--report", self.report)):
            if target is not None and is_same_file(target, file):
                raise InputError(
                    f"{option} is the workload file {str(file)!r}; name another file"
                )
        if self.report is not None:
            check_report(self.report)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with all options of a group in place of each parameter that is a group."""
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
    """The objective that the options ask for; None if they ask for none.

    A penalty alone means its sum, or the makespan, as in Python.
    """
    if penalty is None and aggregate is None:
        return None
    if aggregate is None and penalty is not None:
        return Objective.named(penalty)
    return Objective(penalty or source.workload.objective.penalty, aggregate)  # type: ignore[arg-type]
