"""The figures of FlowFlex."""
