"""Whole tasks on machines of different speeds: DMRS, its bound and its rivals."""
