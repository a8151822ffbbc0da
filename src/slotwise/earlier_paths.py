"""Earlier paths of modules: imports that documents showed keep working."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

MOVED = {
    "slotwise.allocation.bounds": "slotwise.policy.bounds",
    "slotwise.allocation.fluid": "slotwise.policy.fluid",
    "slotwise.allocation.grant": "slotwise.policy.grant",
    "slotwise.allocation.malleable": "slotwise.policy.malleable",
    "slotwise.allocation.packing": "slotwise.policy.packing",
    "slotwise.allocation.rap": "slotwise.policy.rap",
    "slotwise.allocation.search.budget": "slotwise.policy.search.budget",
    "slotwise.allocation.search.generic": "slotwise.policy.search.orders",
    "slotwise.analysis.bound": "slotwise.insight.bound",
    "slotwise.assignment.dmrs.algorithm": "slotwise.policy.dmrs.algorithm",
    "slotwise.assignment.dmrs.linear_program": "slotwise.policy.dmrs.algorithm",
    "slotwise.assignment.dmrs.planning": "slotwise.policy.dmrs.planning",
    "slotwise.assignment.dmrs.problem": "slotwise.policy.dmrs.problem",
    "slotwise.model.errors": "slotwise.core.errors",
    "slotwise.model.job": "slotwise.core.job",
    "slotwise.model.pool_tree": "slotwise.core.pools",
    "slotwise.objective.cost": "slotwise.core.objective",
    "slotwise.programs": "slotwise.jobs",
}
"""The present module of each earlier path."""

PACKAGES = {"slotwise.allocation.search", "slotwise.assignment.dmrs"} | {
    f"slotwise.{name}"
    for name in ("allocation", "analysis", "assignment", "model", "objective")
}
"""Packages that hold nothing any more but such modules."""


class EarlierPaths:
    """Finds modules by their earlier paths; each is the module at its present path, itself.

    A finder and a loader without the base classes of `importlib.abc`, which take longer to
    import than the rest of what a worker process imports of slotwise.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The specification of a module that has moved, or of a package that only held such."""
        if fullname in MOVED or fullname in PACKAGES:
            return ModuleSpec(fullname, cast("Loader", self), is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        """None: an empty module."""

    def exec_module(self, module: ModuleType) -> None:
        """Replace the empty module by the present one, or leave a package empty."""
        if module.__name__ in MOVED:
            sys.modules[module.__name__] = import_module(MOVED[module.__name__])


def install() -> None:
    """Let imports find modules by their earlier paths, where no other finder does."""
    sys.meta_path.append(EarlierPaths())
