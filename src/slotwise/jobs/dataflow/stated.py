"""What a graph states: whether a later run of it can read the files of an earlier one."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import pickle
import secrets
from contextlib import suppress
from dataclasses import replace
from types import FunctionType
from typing import Any, NamedTuple

from slotwise.core.resources import NOTHING
from slotwise.jobs.dataflow.nodes import SplitSource
from slotwise.jobs.dataflow.stages import StagedGraph


class Stated(NamedTuple):
    """A digest of a graph, and the files with the functions and classes that it names.

    The digest is that of the groups, channels, parameters and input, not of the code, nor of
    what copies request. It is the same in each process; for a graph with objects that cannot be
    pickled it never is.
    """

    digest: str
    code_files: frozenset[str]


def stated(staged: StagedGraph) -> Stated:
    """Return what a graph states. The cost is that of pickling its parameters and values."""
    graph = staged.graph
    body = io.BytesIO()
    pickler = _ByName(body, protocol=5)
    plain = [
        [(stage.name, stage.groups) for stage in staged.stages],
        [
            replace(node, source=replace(node.source, held={}))
            if isinstance(node.source, SplitSource)
            else replace(node, resources=NOTHING)
            for node in graph.nodes.values()
        ],
        *(graph.channels, graph.written),
    ]
    try:
        pickler.dump(plain)
    except Exception:  # Code of users may raise anything.
        return Stated(secrets.token_hex(8), frozenset())
    digest = hashlib.sha256(body.getvalue()).hexdigest()[:16]
    return Stated(digest, frozenset(filter(None, map(_file_of, pickler.named))))


class _ByName(pickle.Pickler):
    """Pickles functions and classes as their names, and sets in a fixed order."""

    def __init__(self, body: io.BytesIO, protocol: int) -> None:
        super().__init__(body, protocol)
        self.named: set[Any] = set()

    def persistent_id(self, obj: Any) -> Any:
        """Return what stands for an object: it is pickled instead; None for most objects."""
        if isinstance(obj, set | frozenset):
            return "set", sorted(obj, key=repr)
        if not isinstance(obj, FunctionType | type):
            return None
        is_new = obj not in self.named  # A function may be in its own closure.
        self.named.add(obj)
        name = obj.__module__, obj.__qualname__
        if isinstance(obj, type) or not is_new:
            return name
        cells = [cell.cell_contents for cell in obj.__closure__ or ()]
        return *name, obj.__defaults__, obj.__kwdefaults__, cells


def _file_of(named: Any) -> str:
    """Return the file with the code of a function or class; empty for those of slotwise."""
    if not named.__module__.startswith("slotwise."):
        with suppress(TypeError):
            file = inspect.getsourcefile(named)
            return os.path.abspath(file) if file else ""
    return ""
