"""Check the arguments of a Dataflow: one InputError with place, value and remedy for each."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from slotwise.model.errors import InputError
from slotwise.model.typed import NUMBER, WHOLE
from slotwise.programs.dataflow.declared import Declared, Files, StreamReading
from slotwise.programs.formats import held
from slotwise.programs.formats.inputs import INPUT_FORMATS, NUMBERS
from slotwise.workload.workload import DATAFLOW_SETTINGS

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MAX_COPIES = 100_000
KINDS = ("file", "tcp", "shm")


def name(given: object) -> str:
    """The name of a node or an output: it becomes part of names of files and stages."""
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise InputError(
            f"the name of a node or output is {given!r:.80}; give at most 100 letters, digits,"
            " '_', '-' and '.', the first of them no '-' or '.'"
        )
    return given


def name_of(function: object, given: str | None) -> str:
    """The name of a node: the given one, or that of its function."""
    found = getattr(function, "__name__", "") if given is None else given
    if given is None and (found == "<lambda>" or not found):
        raise InputError(f"flow.node: {function!r:.80} has no name; give the node name=...")
    return name(found)


def function(node: str, given: object) -> Callable[..., Any]:
    """A function or a class."""
    if not callable(given):
        raise InputError(
            f"node {node!r}: function is {given!r:.80}; give a function or a class first, then"
            " the streams that it reads"
        )
    return given


def count(what: str, given: object, node: str = "") -> int:
    """A number of copies."""
    if not isinstance(given, WHOLE) or not 1 <= int(given) <= MAX_COPIES:
        where = f"node {node!r}: " if node else ""
        raise InputError(
            f"{where}{what} is {given!r:.80}; give a whole number from 1 to {MAX_COPIES}"
        )
    return int(given)


def parameters(node: str, given: object) -> Mapping[str, Any]:
    """The parameters of a function by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(
            f"node {node!r}: parameters is {given!r:.80}; give a dict of values by name"
        )
    return dict(given)


def outputs(node: str, given: object) -> tuple[str, ...]:
    """The names of several outputs."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"node {node!r}: outputs is {given!r:.80}; give a tuple of names")
    names = tuple(map(name, given))
    if len(set(names)) < len(names):
        raise InputError(f"node {node!r}: outputs is {names!r}; name each one once")
    return names


def work(node: str, given: object) -> float | None:
    """Seconds of work."""
    if given is None:
        return None
    if not isinstance(given, NUMBER) or not 0 <= float(given) < float("inf"):
        raise InputError(
            f"node {node!r}: work is {given!r:.80}; give the seconds of one copy, >= 0"
        )
    return float(given)


def inputs(
    given: object,
    input_format: object,
    split_bytes: object,
    tables: object,
    input_hosts: object,
) -> Files:
    """The input files of a source."""
    one = isinstance(given, str | os.PathLike)
    paths = [given] if one else list(given) if isinstance(given, Iterable) else []
    if not paths or not all(
        isinstance(path, str | os.PathLike) and str(path) for path in paths
    ):
        raise InputError(
            f"flow.read: inputs is {given!r:.80}; give a path, a glob or a folder, or"
            " a list of them"
        )
    known = sorted(INPUT_FORMATS.keys() - {NUMBERS})
    if input_format not in known:
        raise InputError(
            f"flow.read: input_format is {input_format!r:.80}; known: {', '.join(known)}"
        )
    if not isinstance(split_bytes, WHOLE) or split_bytes < 1:
        raise InputError(
            f"flow.read: split_bytes is {split_bytes!r:.80}; give a whole number >= 1"
        )
    if not isinstance(tables, bool):
        raise InputError(f"flow.read: tables is {tables!r:.80}; give True or False")
    try:
        hosts = held.checked(input_hosts)
    except InputError as error:
        raise InputError(f"flow.read: {error}") from None
    return Files(tuple(map(str, paths)), str(input_format), int(split_bytes), tables, hosts)


def records(given: object) -> tuple[object, ...]:
    """The records of a source in memory."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"flow.values: records is {given!r:.80}; give a list of records")
    return tuple(given)


def reading(given: StreamReading, is_source: bool) -> None:
    """How a stream is read."""
    where = f"the stream of {given.writer!r}"
    if given.kind not in (*KINDS, "direct"):
        raise InputError(f"{where}: kind is {given.kind!r:.80}; known: {', '.join(KINDS)}")
    if given.kind == "direct" and not is_source:
        raise InputError(
            f"{where} is read directly, but {given.writer!r} is no source; read it by file, tcp"
            " or shm"
        )
    if given.by is not None and not callable(given.by):
        raise InputError(
            f"{where}: by is {given.by!r:.80}; give a function that returns the key of a record"
        )
    for what, value in (("broadcast", given.broadcast), ("sort", given.sort)):
        if not isinstance(value, bool):
            raise InputError(f"{where}: {what} is {value!r:.80}; give True or False")
    if given.by is not None and given.broadcast:
        raise InputError(
            f"{where}: by sends each record to one copy and broadcast to all; leave out one"
        )
    if given.kind == "direct" and given.by is not None:
        raise InputError(
            f"{where} is read directly and in parts by key; name a kind, such as tcp(by=...)"
        )
    if given.sort and (given.by is None or given.kind != "file"):
        raise InputError(
            f"{where}: sort is for file channels with a key; write file(by=..., sort=True)"
        )


def job(id: object, output: object, steps: object, settings: Mapping[str, Any]) -> None:
    """The arguments of flow.job that no other code checks."""
    known = (*DATAFLOW_SETTINGS, "work_dir")
    if unknown := sorted(settings.keys() - set(known)):
        raise InputError(
            f"job {id!r}: a dataflow has no setting {unknown[0]!r}; known: {', '.join(known)}"
        )
    for what, path in (("output", output), ("work_dir", settings.get("work_dir") or "")):
        if not isinstance(path, str | os.PathLike):
            raise InputError(
                f"job {id!r}: {what} is {path!r:.80}; give a path, as a text or a Path"
            )
    if not isinstance(steps, Iterable):
        raise InputError(f"job {id!r}: steps is {steps!r:.80}; give pairs (seconds, cost)")


def connected(node: Declared) -> None:
    """InputError if the function of a node cannot take its inputs and parameters.

    The signature of a class does not tell it: some in native code have none, and all have the
    `__call__` of their type.
    """
    assert node.function is not None
    given = node.function
    if isinstance(given, type) and not any("__call__" in vars(one) for one in given.__mro__):
        name = given.__name__
        raise InputError(
            f"node {node.name!r}: objects of its class {name} cannot be called with streams;"
            f" give a function, such as lambda *streams: {name}(*streams)"
        )
    try:
        if isinstance(given, type):
            inspect.signature(given).bind(**node.parameters)
            called = inspect.signature(given.__call__)
            wanted = list(called.parameters.values())[1:]
            passed: Mapping[str, Any] = {}
        else:
            wanted = list(inspect.signature(given).parameters.values())
            passed = node.parameters
    except ValueError:
        return  # A function in native code may have no signature.
    except TypeError as error:
        raise InputError(f"node {node.name!r}: parameters do not fit: {error}") from None
    _check_inputs(node, wanted, passed)


def _check_inputs(
    node: Declared, wanted: Sequence[inspect.Parameter], passed: Mapping[str, Any]
) -> None:
    given = len(node.reads)
    ordinary = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = [one for one in wanted if one.kind in ordinary and one.name not in passed]
    needed = [one for one in takes if one.default is inspect.Parameter.empty]
    if given < len(needed):
        raise InputError(
            f"node {node.name!r}: its input {given + 1} ({needed[given].name!r}) is not"
            " connected; give flow.node a stream for it, or use flow.connect; a value goes into"
            " parameters={...}"
        )
    is_open = any(one.kind is inspect.Parameter.VAR_POSITIONAL for one in wanted)
    if given > len(takes) and not is_open:
        raise InputError(
            f"node {node.name!r} reads {given} streams, but its function takes {len(takes)};"
            " leave some out, or add parameters to the function"
        )
    try:
        inspect.Signature(wanted).bind(*[None] * given, **passed)
    except TypeError as error:
        names = ", ".join(one.name for one in wanted)
        raise InputError(
            f"node {node.name!r}: {error}; parameters of its function: {names}"
        ) from None
