"""Run the code of one copy of a node: the same in worker processes and in an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from slotwise.model.errors import RecordError
from slotwise.programs.dataflow.nodes import OUT, Channel, Node, NodeCopy
from slotwise.programs.shuffle.hashing import stable_hash


class Output(NamedTuple):
    """A record for the output of this name, from a node that has several outputs."""

    name: str
    record: Any


def records_written(
    node: Node, copy: int, inputs: Sequence[Iterable[object]]
) -> Iterator[tuple[str, object]]:
    """What a copy writes, as pairs of an output and a record, in order.

    `inputs` holds the records of each of its inputs. Errors of the function propagate;
    RecordError if it returns what is not records.
    """
    if node.source is not None:
        yield from ((OUT, record) for record in node.source.records(copy))
        return
    assert node.function is not None
    streams = [iter(records) for records in inputs]
    if isinstance(node.function, type):
        result = node.function(**node.parameters)(*streams)
    else:
        result = node.function(*streams, **node.parameters)
    where = f"node {NodeCopy(node.name, copy)}"
    if result is None:
        return
    if not isinstance(result, Iterable) or isinstance(result, str | bytes | Mapping):
        raise RecordError(
            f"{where} returned {result!r:.80}; a node yields records, or returns a list of them"
        )
    is_named = node.outputs != (OUT,)
    for record in result:
        if not is_named and not isinstance(record, Output):
            yield OUT, record
            continue
        if not isinstance(record, Output) or record.name not in node.outputs:
            known = ", ".join(map(repr, node.outputs)) if is_named else "none with a name"
            raise RecordError(
                f"{where} yielded {record!r:.80}; yield slotwise.Output(name, record) for one"
                f" of its outputs ({known}), which `outputs` lists"
            )
        yield record.name, record.record


def reader_of(channel: Channel, record: object, copies: int) -> int:
    """The copy of the reader that gets a record of a channel with the route "hash".

    RecordError for a key of a type that has no stable hash.
    """
    assert channel.by is not None
    key = channel.by(record)
    try:
        return stable_hash(key) % copies
    except TypeError:
        raise RecordError(
            f"{channel}: a key is {key!r:.80}, of type {type(key).__name__}; give texts, bytes,"
            " numbers, dates, None, or tuples of these"
        ) from None


def in_order(channel: Channel, records: Iterable[Any]) -> Iterable[Any]:
    """The records of one reader, sorted if the channel sorts."""
    if not channel.sort:
        return records
    assert channel.by is not None
    return sorted(records, key=channel.by)
