"""Load a program: by its installed name, or from a file, a class or an object."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import cloudpickle

from slotwise.core.errors import (
    InputError,
    MissingExtraError,
    check_installed,
    check_type,
    suggestion,
)
from slotwise.jobs.mapreduce.program import BatchMapReduce, MapReduce

AnyProgram = MapReduce | BatchMapReduce

BUILTINS = {
    "grep": "grep:Grep",
    "inverted-index": "inverted_index:InvertedIndex",
    "sort": "sort:Sort",
    "teragen": "teragen:TeraGen",
    "terasort": "terasort:TeraSort",
    "wordcount": "wordcount:WordCount",
}
"""Installed programs: the module in slotwise.jobs.builtin and the class of each name."""


FILE_MODULE = "slotwise_program_"
"""The prefix of the module names of programs imported from a file path."""


def load(
    spec: str | type[AnyProgram] | AnyProgram,
    parameters: Mapping[str, Any] | None = None,
    base_dir: str | Path | None = None,
) -> AnyProgram:
    """Return the program that `spec` names, created with its parameters.

    `spec` is an installed name ("wordcount"), a class in a file ("path/to/file.py:ClassName",
    relative to `base_dir`), a class, or an object, which takes no parameters. A file is
    imported only in this process; its definitions are sent to workers by value. Raises
    InputError that names the wrong name, file, class or parameter.
    """
    remedy = "give a mapping of names to values"
    check_type("parameters", parameters, Mapping | None, remedy)
    given = dict(parameters or {})
    if isinstance(spec, str):
        return _made(_class_of(spec, base_dir), spec, given)
    if isinstance(spec, type):
        return _made(_checked(spec, spec.__name__), spec.__name__, given)
    if given:
        raise InputError(
            f"parameters {', '.join(given)} for a program that is an object already"
            f" ({type(spec).__name__}); give them to its constructor"
        )
    _checked(type(spec), type(spec).__name__)
    return spec


def known_as(program: AnyProgram) -> str:
    """Return the name that identifies a program in other runs, independent of its parameters.

    It is the installed name, or "file.py:Class" without the folder, or "module:Class" for an
    importable module.
    """
    module, name = type(program).__module__, type(program).__qualname__
    for known, place in BUILTINS.items():
        if f"{module}:{name}" == f"slotwise.jobs.builtin.{place}":
            return known
    return place_of(module, name)


def place_of(module: str, name: str) -> str:
    """Return where a name is defined: "file.py:name" without the folder, or "module:name"."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_file = module == "__main__" or module.startswith(FILE_MODULE)
    return f"{Path(file).name if file and is_file else module}:{name}"


def _class_of(spec: str, base_dir: str | Path | None) -> type[AnyProgram]:
    if spec in BUILTINS:
        module_name, _, class_name = BUILTINS[spec].partition(":")
        module = importlib.import_module(f"slotwise.jobs.builtin.{module_name}")
        builtin: type[AnyProgram] = getattr(module, class_name)
        return builtin
    path, colon, class_name = spec.rpartition(":")
    if not colon or not path.endswith(".py"):
        installed = (
            f"installed: {', '.join(BUILTINS)}; for your own program write"
            " path/to/file.py:ClassName"
        )
        raise InputError(f"unknown program {spec!r}; {suggestion(spec, BUILTINS, installed)}")
    module = imported((Path(base_dir or ".") / path).absolute(), spec)
    found = getattr(module, class_name, None)
    if found is None:
        raise InputError(
            f"program {spec!r}: the file defines no {class_name!r}; it defines"
            f" {', '.join(_programs_in(module)) or 'no program'}"
        )
    return _checked(found, spec)


def _checked(found: object, spec: str) -> type[AnyProgram]:
    if not isinstance(found, type) or not issubclass(found, (MapReduce, BatchMapReduce)):
        raise InputError(
            f"program {spec!r} is not a MapReduce; derive its class from slotwise.MapReduce or"
            " slotwise.BatchMapReduce"
        )
    if found.map in (MapReduce.map, BatchMapReduce.map):
        raise InputError(f"program {spec!r} has no map; define map in its class")
    for name in ("map", "reduce"):
        _check_parameters(found, name, spec)
    if issubclass(found, BatchMapReduce):
        check_installed("pyarrow", f"program {spec!r}, which maps batches,", "arrow")
    return found


def _check_parameters(found: type[AnyProgram], name: str, spec: str) -> None:
    """Raise InputError for a method that cannot take the arguments of its calls."""
    base = BatchMapReduce if issubclass(found, BatchMapReduce) else MapReduce
    wanted = list(inspect.signature(getattr(base, name)).parameters)
    try:
        inspect.signature(getattr(found, name)).bind(*wanted)
    except TypeError as error:
        raise InputError(
            f"program {spec!r}: its {name} must be def {name}({', '.join(wanted)}): {error}"
        ) from error
    except ValueError:
        pass  # A function in native code may have no signature.


def _made(program_class: type[AnyProgram], spec: str, given: dict[str, Any]) -> AnyProgram:
    signature = inspect.signature(program_class)
    try:
        signature.bind(**given)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise InputError(f"program {spec!r}: {error}; its parameters: {known}") from error
    try:
        return program_class(**given)
    except (InputError, MissingExtraError):
        raise
    except Exception as error:
        raise InputError(
            f"program {spec!r} with parameters {given!r} cannot be created:"
            f" {type(error).__name__}: {error}"
        ) from error


def imported(path: Path, spec: str, what: str = "program") -> ModuleType:
    """Import a file; register it and modules next to it to be pickled by value."""
    if not os.path.isfile(path):  # Path.is_file raises for a path that is too long.
        raise InputError(f"{what} {spec!r}: file {path} not found; check the path")
    name = f"{FILE_MODULE}{path.stem}_{crc32(str(path).encode()):08x}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    before = set(sys.modules)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(
            f"{what} {spec!r}: importing {path} failed: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
    for other in sorted(sys.modules.keys() - before | {name}):
        file = getattr(sys.modules[other], "__file__", None)
        # Workers cannot import modules next to the file: its folder is not on their path.
        if file is not None and path.parent in Path(file).parents:
            cloudpickle.register_pickle_by_value(sys.modules[other])
    return module


def _programs_in(module: ModuleType) -> list[str]:
    bases = (MapReduce, BatchMapReduce)
    return [
        name
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, bases) and value not in bases
    ]
