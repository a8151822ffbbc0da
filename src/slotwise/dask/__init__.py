"""The gate: schedules the computations of an existing Dask cluster, without changes of code.

Install it with `slotwise.dask.install(client)`, or start the scheduler with
`dask scheduler --preload slotwise.dask --slotwise-config FILE`. Without a file the options are
those under `slotwise:` in the configuration of Dask. docs/howto/configure-the-gate.md
describes them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from slotwise.core.codec import encode_pool
from slotwise.core.errors import MissingExtraError
from slotwise.core.objective import Objective
from slotwise.core.pools import Pool

try:
    from slotwise.dask.gate import Gate
    from slotwise.dask.live_page import page
    from slotwise.dask.options import GateOptions
    from slotwise.dask.preload import dask_setup
    from slotwise.dask.serving import status
    from slotwise.dask.status import GateStatus
except ImportError as missing:
    raise MissingExtraError("the gate", "dask", missing) from missing

__all__ = ["Gate", "GateOptions", "GateStatus", "dask_setup", "install", "page", "status"]


def install(client: Any, **options: Any) -> None:
    """Install the gate in the scheduler of a client's cluster; it replaces an earlier one.

    An earlier gate with the same options is kept, with all tasks that it holds.

    `options` are those of `GateOptions` in plain form: `scheduler="fair"`, `pools=[{"name":
    "reports", "slots_min": 2}]`. Pools may also be `slotwise.Pool` objects, or be stated by
    name with a weight or keys: `pools={"reports": 2}`. The objective may be a
    `slotwise.Objective`, or the name of a penalty. By default the options are those under
    `slotwise:` in the configuration of Dask. InputError for invalid options.
    slotwise must be installed in the environment of the scheduler.
    """
    pools = options.get("pools")
    if isinstance(pools, list | tuple):
        options["pools"] = [encode_pool(one) if isinstance(one, Pool) else one for one in pools]
    if isinstance(options.get("objective"), Objective):
        options["objective"] = asdict(options["objective"])
    gate = Gate(GateOptions.of_mapping(options) if options else GateOptions.configured())
    if not client.run_on_scheduler(_has_gate, gate.options):
        client.register_plugin(gate, name=Gate.name)


def _has_gate(options: GateOptions, dask_scheduler: Any) -> bool:
    """Whether a scheduler has a gate with these options that holds tasks."""
    gate = dask_scheduler.plugins.get(Gate.name)
    return isinstance(gate, Gate) and gate.options == options and not gate.is_open
