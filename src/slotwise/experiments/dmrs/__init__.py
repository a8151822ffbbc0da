"""The figures of DMRS."""
