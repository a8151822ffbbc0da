"""The gate: jobs of an existing Dask cluster share it fairly, without changes of their code."""

from __future__ import annotations

from typing import Any

from slotwise.dask.gate import Gate
from slotwise.dask.options import GateOptions, Rule

__all__ = ["Gate", "GateOptions", "Rule", "install"]


def install(client: Any, scheduler: str = "flex", **options: Any) -> None:
    """Install the gate in the scheduler of a client's cluster, in place of an earlier one.

    `options` are those of `GateOptions`. InputError for options that do not fit.
    """
    gate = Gate(GateOptions.of_mapping({"scheduler": scheduler, **options}))
    client.register_plugin(gate, name=Gate.name)
