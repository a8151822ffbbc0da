"""The public contract as text, found by introspection: a section for each text file here."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import sqlite3
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, closing, contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import typer
from typer.testing import CliRunner

from public_names.documented import ROOT, docstrings, documented_imports, documented_texts
from public_names.shapes import schema, shape
from public_names.signatures import Describer, defined_in
from slotwise.cli.main import app
from slotwise.core import codec, log
from slotwise.core.cluster import Host
from slotwise.core.decisions import Decision
from slotwise.core.events import Event
from slotwise.core.history import append_history
from slotwise.core.job import Block, Job, Observation, Phase, PhaseId, Tasks
from slotwise.core.objective import PENALTIES
from slotwise.core.pools import Pool, Preemption
from slotwise.dask.options import AnnotationEntry, GateEntry, GateOptions, header_of
from slotwise.dask.preload import dask_setup
from slotwise.dask.status import GateStatus
from slotwise.jobs.formats.inputs import INPUT_FORMATS
from slotwise.jobs.formats.outputs import OUTPUT_FORMATS
from slotwise.jobs.loading import BUILTINS
from slotwise.policy.dmrs.planning import PLANNERS
from slotwise.policy.scheduler import ALLOCATORS, ASSIGNERS, SCHEDULERS
from slotwise.workload.schema import WorkloadEntry

HERE = Path(__file__).parent
DATA = HERE.parent / "data"

WHOLE_MODULES = ("slotwise", "slotwise.task", "slotwise.dask", "slotwise.integrations.joblib")
"""Modules of which every public name is part of the contract."""


def sections() -> dict[str, Callable[[], Iterator[str]]]:
    """The function that makes the text of each file, by the name of the file."""
    return {
        "python.txt": python,
        "commands.txt": commands,
        "workload.txt": workload,
        "log.txt": logs,
        "json.txt": outputs,
    }


def python() -> Iterator[str]:
    """All public names of Python: kind, signature, members."""
    describer = Describer()
    documented = documented_imports()
    yield "# Imports that the documents show"
    for module, taken in sorted(documented.items()):
        yield f"{module}: {', '.join(sorted(taken)) or '(the module)'}"
    named: set[type] = set()
    for module in sorted({*WHOLE_MODULES, *documented}):
        found = importlib.import_module(module)
        names = set(defined_in(module)) if module in WHOLE_MODULES else documented[module]
        yield from ("", f"# {module}")
        for name in sorted(names):
            value = _taken(found, name)
            named |= {value} if inspect.isclass(value) else set()
            yield from describer.name(f"{module}.{name}", value)
    yield from ("", "# Classes that these return, by name; nobody imports them")
    returned: dict[str, list[str]] = {}
    while left := {name: cls for name, cls in describer.reached.items() if cls not in named}:
        for name, cls in left.items():
            named.add(cls)
            returned[name] = list(describer.name(name, cls))
    for name in sorted(returned):
        yield from returned[name]
    yield from ("", "# Backends of joblib")
    yield from sorted(name for name, cls in _joblib_backends().items() if _is_ours(cls))


def _taken(module: Any, name: str) -> Any:
    """What `from module import name` gives: a name, or a module below it."""
    with suppress(AttributeError):
        return getattr(module, name)
    return importlib.import_module(f"{module.__name__}.{name}")


def _joblib_backends() -> Mapping[str, Any]:
    from joblib.parallel import BACKENDS

    return BACKENDS


def _is_ours(cls: Any) -> bool:
    return str(cls.__module__).startswith("slotwise.")


def commands() -> Iterator[str]:
    """The command line, as the parser has it; what an installation offers; the environment."""
    yield from _command("slotwise", typer.main.get_command(app))
    yield from ("", "# dask scheduler --preload slotwise.dask")
    for option in dask_setup.params:
        yield f"    {', '.join(option.opts)}: {option.type.name}"
    yield from ("", "# Values that options and keys take")
    for title, names in _accepted().items():
        yield f"{title}: {', '.join(names)}"
    yield from ("", "# pyproject.toml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name, place in sorted(project["scripts"].items()):
        yield f"script {name} = {place}"
    for group, entries in sorted(project.get("entry-points", {}).items()):
        yield from (f"entry point {group}: {name}" for name in sorted(entries))
    yield f"requires-python {project['requires-python']}"
    yield from (f"extra {name}" for name in sorted(project["optional-dependencies"]))
    yield from ("", "# Environment variables")
    documents = "\n".join(documented_texts())
    for name in sorted(_variables()):
        yield f"{name}" + ("" if name in documents else "  (not in the documents)")


def _accepted() -> dict[str, list[str]]:
    return {
        "schedulers": sorted(SCHEDULERS),
        "allocators": sorted(ALLOCATORS),
        "planners of tasks": sorted(PLANNERS),
        "assigners": sorted(ASSIGNERS),
        "penalties": sorted(PENALTIES),
        "programs": sorted(BUILTINS),
        "input formats": sorted(INPUT_FORMATS),
        "output formats": sorted(OUTPUT_FORMATS),
    }


def _command(title: str, command: Any) -> Iterator[str]:
    """A command with its parameters, then the commands below it."""
    yield from ("", f"# {title}") if " " in title else (f"# {title}",)
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option"]
    for one in arguments:
        many = " ..." if one.nargs == -1 else ""
        yield f"    {one.metavar or one.name}{many}{_value_of(one)}"
    for one in sorted(options, key=lambda one: one.opts):
        spelled = ", ".join([*one.opts, *one.secondary_opts])
        metavar = f" {one.metavar}" if one.metavar else ""
        yield f"    {spelled}{metavar}{_value_of(one)}{' (hidden)' * one.hidden}"
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _command(f"{title} {name}", below)


def _value_of(parameter: Any) -> str:
    """The type, limits and default of a parameter."""
    taken = parameter.type_descriptor.annotation
    kind = "flag" if getattr(parameter, "is_flag", False) else Describer().type(taken)
    limits = [
        f" {sign} {limit}"
        for sign, limit in ((">=", parameter.min), ("<=", parameter.max))
        if limit is not None
    ]
    choices = [f" {one.value}" for one in taken] if _is_enum(taken) else []
    default = parameter.default
    shown = str(default) if isinstance(default, Path) else default
    after = ", required" if parameter.required else f" = {shown!r}"
    several = ", may be repeated" if parameter.multiple else ""
    return f": {kind}{''.join(limits + choices)}{several}{after}"


def _is_enum(taken: Any) -> bool:
    return inspect.isclass(taken) and issubclass(taken, Enum)


def _variables() -> set[str]:
    """Variables that the documents name, or the package outside of docstrings, or reads.

    The rest of a name may be put together in code, so the documents count, too.
    """
    found = set(re.findall(r"\bSLOTWISE_[A-Z]+(?:_[A-Z]+)*\b", "\n".join(documented_texts())))
    for module in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        told = set(docstrings(tree))
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(text, str) or inspect.cleandoc(text) in told:
                continue
            if text.startswith("SLOTWISE_") and text.isupper() and not text.endswith("_"):
                found.add(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("environ.get"):
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(first.value)
    return found


def workload() -> Iterator[str]:
    """The keys of the files that users write."""
    yield "# A workload file, version 1"
    yield from schema(WorkloadEntry.model_json_schema())
    yield from ("", "# The options of the gate: a file, or `slotwise:` in Dask's configuration")
    yield from schema(GateEntry.model_json_schema())
    yield from ("", "# dask.annotate(slotwise={...})")
    yield from schema(AnnotationEntry.model_json_schema())


NAMES = {name: f"x-{name}" for name in ("job", "phase", "host", "pool", "kind", "reason")}
"""What users name in the samples."""

JOBS = (
    Job(
        "x-job",
        (
            Phase(
                "x-phase",
                Tasks(2, (1.5, 2.5), (Block(frozenset({"x-host"}), 1),) * 2),
                slots=2,
                slots_max=4,
            ),
            Phase(
                "x-copies",
                Tasks(1, 1.5),
                after=frozenset({"x-phase"}),
                slow_start=0.5,
                copy=1.5,
                hosts=("x-host",),
            ),
            Phase("x-next", Tasks(2), continues="x-phase"),
            Phase("x-gang", Tasks(2, 1.5), gang=True),
            Phase("x-gated", Tasks(2, 1.5), gated=True),
            Phase("x-grows", Tasks(1, None), grows=True),
        ),
        arrival=1.5,
        weight=1.5,
        deadline=9.5,
        steps=((1.5, 2.5),),
        penalty="response",
        program="x-program",
        user="x-user",
    ),
    Job("x-job", (Phase("x-phase", Tasks(1, 1.5)),)),
)

POOLS = (
    Pool("x-pool", 1.5, {"x-kind": 1}, {"x-kind": 2}, parent="x-parent", jobs_max=1,
         jobs_max_per_user={"x-user": 1},
         preemption=Preemption(1.5, inf, 0.5, 1.5)),
    Pool("x-pool"),
)  # fmt: skip

EXAMPLES: dict[Any, tuple[Any, ...]] = {
    float: (1.5,),
    int: (1,),
    str: ("x-name",),
    bool: (True, False),
    type(None): (None,),
    PhaseId: (PhaseId("x-job", "x-phase"),),
    Job: JOBS,
    Pool: POOLS,
    Host: (Host("x-host", {"x-kind": 1}, "x-rack", 1.5),),
}
"""Values of each type that occurs in a log. A value of a new type needs an example here."""


def examples(taken: Any) -> tuple[Any, ...]:
    """Values of a type, which together have all keys that it may have in JSON."""
    if taken in EXAMPLES:
        return EXAMPLES[taken]
    origin, parts = typing.get_origin(taken), typing.get_args(taken)
    if origin is typing.Literal:
        return parts
    if inspect.isclass(taken) and issubclass(taken, Enum):
        return tuple(taken)
    if is_dataclass(taken) or hasattr(taken, "_fields"):
        return tuple(_instances(taken))
    if origin is tuple:
        whole = [examples(part) for part in parts if part is not ...]
        return (whole[0],) if parts[-1] is ... else (tuple(one[0] for one in whole),)
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        keys, values = examples(parts[0]), examples(parts[1])
        return tuple({keys[0]: value} for value in values)
    if parts:  # A union.
        return tuple(value for part in parts for value in examples(part))
    raise AssertionError(f"{taken} is written into logs; add an example to EXAMPLES")


def _instances(cls: Any) -> Iterator[Any]:
    """An instance for each value of each field, and one with the required fields only."""
    hints = typing.get_type_hints(cls)
    values = {name: examples(taken) for name, taken in hints.items()}
    full = {name: found[0] for name, found in values.items()}
    for name, found in values.items():
        yield from (cls(**full | {name: value}) for value in found)
    if is_dataclass(cls):
        required = {
            one.name
            for one in fields(cls)
            if one.default is MISSING and one.default_factory is MISSING
        }
        yield cls(**{name: value for name, value in full.items() if name in required})


def logs() -> Iterator[str]:
    """The lines of a log and the tables of a history."""
    written = list(_lines_of_logs())
    yield f"# A log: format {log.FORMAT}, rules {log.RULES}"
    yield from ("", "# Its first line")
    yield from shape(lines[0] for lines in written)
    yield from ("", "# Its other lines")
    turns = [turn for lines in written for turn in lines[1:]]
    yield from sorted({key for turn in turns for key in turn})
    for title, union in (("events", Event), ("decisions", Decision)):
        for cls in sorted(typing.get_args(union), key=lambda cls: cls.__name__):
            yield from ("", f"# {cls.__name__}, in {title}")
            yield from shape(_written(value) for value in examples(cls))
    yield from ("", "# A history")
    yield from _tables()


def _written(value: Any) -> Any:
    """A value as a log has it. What is read is written in the same way again."""
    plain = json.loads(json.dumps(codec.encode(value)))
    assert json.loads(json.dumps(codec.encode(codec.decode(plain)))) == plain
    return plain


LOGS = (
    "simulate many.yaml --assigner delay --waits 1,2 --noise 0.3 --save-seconds 0.2"
    " --outage x-h1=6+3 --true-speed x-h2=1.2",
    "simulate many.yaml --assigner flow --core-cost 2 --move-within 1 --hide-work",
    "run tiny.yaml --slots 1",
    "run tiny.yaml --emulate-hosts",
)
"""Commands whose logs together have all keys of the first line, but for those of the gate."""


def _lines_of_logs() -> Iterator[list[Any]]:
    """The lines of logs that are written now, and the first line of that of a gate."""
    with in_data() as folder:
        for number, words in enumerate(LOGS):
            path = folder / f"{number}.log"
            invoke(*words.split(), "--log", str(path))
            yield [json.loads(line) for line in path.read_text().splitlines()]
    yield [header_of(GateOptions()).to_plain()]


@contextmanager
def in_data() -> Iterator[Path]:
    """The current folder is one with copies of the files of `tests/data`.

    There is also a log of which one decision was changed, and a job that prints. Runs are kept
    in the folder, too, and not among those of the user.
    """
    with (
        TemporaryDirectory() as folder,
        chdir(folder),
        patch.dict(os.environ, XDG_STATE_HOME=folder),
    ):
        for file in DATA.iterdir():
            if file.is_file():
                Path(file.name).write_bytes(file.read_bytes())
        text = Path("simulated.jsonl").read_text()
        Path("changed.jsonl").write_text(text.replace('"until":0.5', '"until":0.75', 1))
        Path("prints.yaml").write_text("slotwise: 1\njobs: [{id: x-job, command: echo x}]\n")
        yield Path(folder)


def _tables() -> Iterator[str]:
    """The tables and columns of a history that is made now, and what marks it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "history.db"
        append_history(path, [Observation("x-program", "map", 1, "x-host", 1.0, 1.5)])
        with closing(sqlite3.connect(path)) as database:
            for pragma in ("application_id", "user_version", "journal_mode"):
                yield f"{pragma} {database.execute(f'PRAGMA {pragma}').fetchone()[0]}"
            tables = database.execute(
                "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY 2"
            )
            for kind, name, table in tables.fetchall():
                yield f"{kind} {name}" + ("" if kind == "table" else f" of {table}")
                columns = database.execute(f"PRAGMA {kind}_info({name})").fetchall()
                for column in columns:
                    if kind == "table":
                        yield f"    {column[1]} {column[2]}{' NOT NULL' * column[3]}"
                    else:
                        yield f"    {column[2]}"


def outputs() -> Iterator[str]:
    """The keys of what commands print with --json, and of the status of the gate."""
    with in_data():
        for title, words in JSON_COMMANDS.items():
            yield from (
                ("", f"# slotwise {title}") if title != "plan" else (f"# slotwise {title}",)
            )
            printed = [line for one in words for line in invoke(*one.split()).splitlines()]
            yield from shape(map(json.loads, printed), types=title != "run")
    yield from ("", "# slotwise.dask.status(client).to_plain(), and the page /slotwise.json")
    status = [value.to_plain() for value in examples(GateStatus)]
    yield from shape(json.loads(json.dumps(status)))


JSON_COMMANDS = {
    "plan": ["plan small.yaml --json"],
    "plan --scheduler": ["plan small.yaml --scheduler dmrs --json"],
    "simulate": ["simulate many.yaml --json"],
    "run": [
        "run tiny.yaml --slots 1 --json",
        "run broken.yaml --slots 1 --json",
        "run prints.yaml --json",
    ],
    "compare": ["compare many.yaml --schedulers fair,fifo --json"],
    "replay": ["replay simulated.jsonl --json", "replay changed.jsonl --json"],
    "explain": ["explain simulated.jsonl --json"],
    "explain --job": ["explain simulated.jsonl --job x-late --json"],
    "explain --at": ["explain simulated.jsonl --job x-late --at 4 --json"],
    "show": ["show flow.yaml --json"],
    "history": ["history history.db --json"],
    "logs": ["logs --json"],
    "logs --list": ["logs --list --json"],
}
"""Commands that print JSON, with the files of `tests/data`.

What `run` prints is measured, so only the keys are compared.
"""


def invoke(*arguments: str) -> str:
    """Run a command in this process; what it writes to stdout. A job may fail."""
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "100", "TERM": "dumb"})
    assert done.exit_code in (0, 1), f"{arguments}: {done.exit_code}\n{done.stderr}"
    return done.stdout
