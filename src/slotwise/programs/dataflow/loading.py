"""Load a dataflow, and the functions of its nodes, from files and modules."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from slotwise.model.errors import InputError, SlotwiseError
from slotwise.programs.dataflow.graph import Dataflow
from slotwise.programs.loading import imported


def load_flow(spec: str, base_dir: str | Path | None = None) -> Dataflow:
    """The Dataflow at "app.py:name" or "module:name"; without a name, the only one there.

    A function without parameters that returns a Dataflow is called.
    """
    place, name = _place(spec)
    module = _module(place, spec, base_dir)
    flows = [key for key, value in vars(module).items() if isinstance(value, Dataflow)]
    if not name:
        if len({id(vars(module)[key]) for key in flows}) != 1:
            has = f"several dataflows: {', '.join(flows)}" if flows else "no dataflow"
            raise InputError(
                f"{spec!r} has {has}; name one, as {place}:flow, where flow ="
                " slotwise.Dataflow()"
            )
        name = flows[0]
    found = _attribute(module, name, spec, flows)
    if callable(found) and not isinstance(found, type):
        try:
            found = found()
        except SlotwiseError:
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{spec!r} cannot be called: {type(error).__name__}: {error}; it must take no"
                " arguments and return a slotwise.Dataflow"
            ) from error
    if not isinstance(found, Dataflow):
        known = f"; the file has {', '.join(flows)}" if flows else ""
        raise InputError(f"{spec!r} is {found!r:.80}, not a slotwise.Dataflow{known}")
    return found


def load_function(spec: str, base_dir: str | Path | None = None) -> Any:
    """The function or class at "file.py:name" or "module:name"."""
    place, name = _place(spec)
    if not name:
        raise InputError(f"function {spec!r}: write file.py:name or module:name")
    module = _module(place, spec, base_dir)
    known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    found = _attribute(module, name, spec, known)
    if not callable(found):
        raise InputError(f"function {spec!r} is {found!r:.80}; name a function or a class")
    return found


def _place(spec: str) -> tuple[str, str]:
    if spec.endswith(".py"):
        return spec, ""
    place, colon, name = spec.rpartition(":")
    return (place, name) if colon else (spec, "")


def _module(place: str, spec: str, base_dir: str | Path | None) -> Any:
    if place.endswith(".py"):
        return imported((Path(base_dir or ".") / place).absolute(), spec, "dataflow")
    try:
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{spec!r}: importing {place!r} failed: {type(error).__name__}: {error}; write"
            " file.py:name or module:name"
        ) from error


def _attribute(module: Any, name: str, spec: str, known: list[str]) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            has = ", ".join(known[:20]) or "nothing that fits"
            raise InputError(f"{spec!r}: there is no {name!r}; there is {has}")
    return found
