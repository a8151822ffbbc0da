"""FlowFlex: flows of phases, planned as a whole, for any sum or maximum of their costs."""
