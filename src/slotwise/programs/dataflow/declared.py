"""What a user declares: nodes, how they read, and where the records of sources come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from slotwise.model.errors import InputError
from slotwise.programs.dataflow.nodes import OUT, Kind, RecordSource, SplitSource, ValueSource
from slotwise.programs.formats.held import held_by
from slotwise.programs.formats.planned import PlannedInput
from slotwise.programs.transfer import pickled


@dataclass(frozen=True, slots=True)
class StreamReading:
    """How a node reads an output of another node, as the user says it."""

    writer: str
    output: str
    kind: Kind
    by: Callable[[Any], Any] | None = None
    broadcast: bool = False
    sort: bool = False


@dataclass(frozen=True, slots=True)
class Files:
    """Input files that are not looked for yet, and `hosts`: what `held_by` takes."""

    patterns: tuple[str, ...]
    format_name: str
    split_bytes: int
    tables: bool
    hosts: Any = None

    def source(self, base_dir: str | Path) -> RecordSource:
        """The splits of the files. InputError if there are none."""
        planned = PlannedInput.of_files(self.patterns, self.format_name, base_dir or None)
        return SplitSource(
            self.format_name,
            tuple(planned.splits(self.split_bytes)),
            self.tables,
            held_by(self.hosts, planned.files, base_dir or None),
        )


@dataclass(frozen=True, slots=True)
class Values:
    """Records in memory, in `copies` parts."""

    records: tuple[object, ...]
    copies: int

    def source(self, base_dir: str | Path) -> RecordSource:
        """The records in parts. InputError for a record that cannot be pickled."""
        each, more = divmod(len(self.records), self.copies)
        ends = [each * n + min(n, more) for n in range(self.copies + 1)]
        parts = tuple(self.records[one:other] for one, other in pairwise(ends))
        try:
            sizes = tuple(len(pickled(part, None, [])) if part else 0 for part in parts)
        except Exception as error:
            raise InputError(
                f"flow.values: a record cannot be pickled: {error}; give plain data"
            ) from None
        return ValueSource(parts, sizes)


@dataclass
class Declared:
    """A node as the user declared it; `reads` grows by flow.connect."""

    name: str
    function: Callable[..., Any] | None = None
    copies: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = (OUT,)
    work: float | None = None
    reads: list[StreamReading] = field(default_factory=list)
    given: Files | Values | None = None

    @property
    def is_source(self) -> bool:
        """Whether it is a source of records."""
        return self.given is not None
