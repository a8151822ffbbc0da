"""Workloads: their files, traces of other systems, and generators."""
