"""FlowFlex: plans whole flows of phases, for any sum or maximum of their costs."""

from __future__ import annotations
