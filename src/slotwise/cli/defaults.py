"""The files of defaults of live work: `slotwise.toml` of the project and of the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import AfterValidator, Field, ValidationError, create_model

from slotwise.backends.local.backend import names_hosts
from slotwise.cli.options import DURATIONS, FORMS, HINTS
from slotwise.core.cluster import Count, Slots
from slotwise.core.errors import InputError, suggestion
from slotwise.policy.scheduler import ASSIGNERS, SCHEDULERS
from slotwise.service.users.access import JOBS_MAX
from slotwise.sources import Slots as SlotsGiven
from slotwise.sources import Source, resources_of_host
from slotwise.workload.file import build_pools
from slotwise.workload.schema import (
    Amounts,
    Duration,
    Entry,
    Listed,
    Name,
    ObjectiveEntry,
    PoolDefaults,
    PoolEntry,
    PreemptionEntry,
    Size,
)
from slotwise.workload.text import Lines, complaint

NAME = "slotwise.toml"
"""The name of a file of defaults."""

OF_WORKLOADS = ("pools", "pool_defaults", "objective", "preemption")
"""The keys that are those of a workload file, where it does not state them."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What the files of defaults state.

    files     their paths, that of the project first
    workload  values of keys of a workload file
    slots     the slots of this machine; `resources` what it has beside them
    options   values of options of `slotwise run`, by name
    """

    files: tuple[Path, ...] = ()
    workload: Mapping[str, Any] = field(default_factory=dict)
    slots: SlotsGiven | None = None
    resources: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def stated_in(cls, file: Path) -> Defaults:
        """The defaults of this file alone. InputError for a file that is not right."""
        stated = _read(file)
        workload = {key: stated.pop(key) for key in OF_WORKLOADS if key in stated}
        host = stated.pop("slots", None), stated.pop("resources", None)
        return cls((file,), workload, *host, stated)

    @classmethod
    def of(cls, file: Path) -> Defaults:
        """The defaults for a workload file. InputError for a file that is not right.

        The project's file goes before the user's, key by key.
        """
        files = tuple(one for one in (project_file(file.parent), user_file()) if one.is_file())
        stated: dict[str, Any] = {}
        for one in reversed(files):
            stated |= _read(one)
        stated.pop("service", None)
        workload = {key: stated.pop(key) for key in OF_WORKLOADS if key in stated}
        host = stated.pop("slots", None), stated.pop("resources", None)
        return cls(files, workload, *host, stated)

    def host_for(
        self, source: Source, slots: SlotsGiven | None, resources: Mapping[str, Any] | None
    ) -> tuple[SlotsGiven | None, Mapping[str, Any] | None]:
        """The slots and resources for a run on this machine, of which some are given.

        Those that an option or the workload states stay; resources are taken name by name.
        """
        cluster = source.workload.cluster
        is_stated = cluster is not None and not names_hosts(cluster)
        if self.resources:
            resources = {**self.resources, **resources_of_host(source.workload, resources)}
        return self.slots if slots is None and not is_stated else slots, resources

    def __str__(self) -> str:
        return " and ".join(map(str, self.files))


def options_stated(context: typer.Context) -> set[str]:
    """The names of the options that the command line states."""
    origins = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, origin in origins.items() if origin and origin.name != "DEFAULT"}


def project_file(folder: Path) -> Path:
    """The place of the project's file: in this folder, or the nearest above it that has one.

    Folders above are part of the project up to the one with `.git`; without one none is.
    """
    folder = folder.absolute()
    above = [folder, *folder.parents]
    roots = [number for number, one in enumerate(above) if (one / ".git").exists()]
    places = [one / NAME for one in above[: roots[0] + 1 if roots else 1]]
    return next((place for place in places if place.is_file()), places[0])


def user_file() -> Path:
    """The place of the user's file."""
    stated = os.environ.get("XDG_CONFIG_HOME", "")
    folder = stated if os.path.isabs(stated) else os.path.expanduser("~/.config")
    return Path(folder, "slotwise", NAME)


def _known(what: str, names: Iterable[str]) -> AfterValidator:
    known = tuple(names)

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"unknown {what}; {suggestion(value, known)}")
        return value

    return AfterValidator(check)


def _options() -> dict[str, Any]:
    """The types of the options of `Scheduling`, but for those that workload files state."""
    kinds: dict[str, Any] = {}
    for one, forms in FORMS.items():
        for name, annotation in forms.items():
            kind = Duration if one in DURATIONS else get_args(annotation)[0]
            least = get_args(HINTS[one])[2:]
            if least and one not in DURATIONS:
                kind = Annotated[kind, Field(ge=least[0])]
            kinds[name] = kind
    for name in ("objective", "aggregate", "preempt"):
        del kinds[name]
    kinds["assigner"] = Annotated[str, _known("assigner", ASSIGNERS)]
    return kinds


class UserEntry(Entry):
    """The keys of a user under `service.users`."""

    account: Name | None = None
    roles: dict[Name, str] | None = None
    jobs_max: Annotated[int, Field(ge=0)] = JOBS_MAX


class ServiceEntry(Entry):
    """The keys under `service`, which only `slotwise serve` takes."""

    listen: str | None = None
    certificate: str | None = None
    key: str | None = None
    plain: bool = False
    hosts: Annotated[list[Name], Listed] = Field(default_factory=list)
    run_as: bool = False
    users: dict[Name, UserEntry] = Field(default_factory=dict)
    drain: Duration | None = None
    keep_days: Annotated[float, Field(gt=0)] | None = None
    keep_jobs: Annotated[int, Field(ge=1)] | None = None
    output_max: Size | None = None


@cache
def _model() -> type[Entry]:
    """The keys of a file of defaults; made only for a run that has such a file."""
    kinds: dict[str, Any] = {
        "scheduler": Annotated[str, _known("scheduler", SCHEDULERS)],
        "slots": Slots | dict[Name, Count],
        "resources": Amounts,
        "pools": Annotated[list[PoolEntry], Listed],
        "pool_defaults": PoolDefaults,
        "objective": ObjectiveEntry,
        "preemption": PreemptionEntry,
        "service": ServiceEntry,
        **_options(),
    }
    optional: dict[str, Any] = {name: (kind | None, None) for name, kind in kinds.items()}
    return create_model("DefaultsEntry", __base__=Entry, **optional)


def _read(file: Path) -> dict[str, Any]:
    """What a file states, by key: of workloads as stated, the rest as options take it."""
    import tomllib  # Few runs need it.

    try:
        data, lines = tomllib.loads(file.read_bytes().decode()), Lines("")
        try:
            stated = dict(_model().model_validate(data))
        except ValidationError as error:
            raise InputError(complaint(error, data, lines, _model())) from error
        build_pools(stated["pools"] or [], data, lines, stated["pool_defaults"])
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; make it readable, or remove it") from error
    except ValueError as error:  # Not UTF-8, or not TOML.
        raise InputError(f"{file}: not TOML: {error}; correct it") from error
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return {key: data[key] if key in OF_WORKLOADS else stated[key] for key in data}
