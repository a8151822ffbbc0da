"""The schema of the key `dataflow` of a job in a workload file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from slotwise.workload.entry import Entry, InputHosts, Name, Place, Seconds

MAX_COPIES = 100_000
"""The maximum number of copies of a node."""


class ReadEntry(Entry):
    """How a node reads what another one writes."""

    node: Name
    output: Name | None = None
    kind: Literal["file", "tcp", "shm", "direct"] | None = None
    by: Place | None = None
    broadcast: bool = False
    sort: bool = False


class NodeEntry(Entry):
    """A node with a function, or a source: input files, or values."""

    name: Name
    function: Place | None = None
    reads: list[Name | ReadEntry] | None = None
    copies: Annotated[int, Field(ge=1, le=MAX_COPIES)] | None = None
    parameters: dict[str, Any] | None = None
    outputs: Annotated[list[Name], Field(min_length=1)] | None = None
    work: Seconds | None = None
    inputs: Place | Annotated[list[Place], Field(min_length=1)] | None = None
    input_format: Name | None = None
    split_bytes: Annotated[int, Field(ge=1)] | None = None
    tables: bool | None = None
    input_hosts: InputHosts | None = None
    values: list[Any] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [key for key in NODE_KEYS if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError("give one of function, inputs and values")
        for key in sorted({key for keys in NODE_KEYS.values() for key in keys}):
            if key not in NODE_KEYS[given[0]] and getattr(self, key) is not None:
                raise ValueError(f"{key} is not for a node with {given[0]}; remove it")
        return self


NODE_KEYS = {
    "function": ("reads", "copies", "parameters", "outputs", "work"),
    "inputs": ("input_format", "split_bytes", "tables", "input_hosts"),
    "values": ("copies",),
}
"""The further keys of each kind of node."""


class WriteEntry(Entry):
    """An output of a node that is output of the job."""

    node: Name
    output: Name | None = None
    output_format: Name | None = None


class DataflowEntry(Entry):
    """A graph of nodes, or the place of a slotwise.Dataflow in Python."""

    app: Place | None = None
    nodes: Annotated[list[NodeEntry], Field(min_length=1)] | None = None
    write: Annotated[list[Name | WriteEntry], Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.app is None) == (self.nodes is None):
            raise ValueError("give either app or nodes")
        if (self.nodes is None) != (self.write is None):
            raise ValueError(
                "name in write the nodes that are output of the job"
                if self.write is None
                else "write is for nodes; the app says what is written: remove it"
            )
        return self
