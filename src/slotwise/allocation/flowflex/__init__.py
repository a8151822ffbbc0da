"""FlowFlex: plans whole flows of phases, for any sum or maximum of their costs."""
