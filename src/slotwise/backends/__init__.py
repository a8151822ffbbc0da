"""Backends: a simulation, worker processes of this machine, agents on other hosts."""
