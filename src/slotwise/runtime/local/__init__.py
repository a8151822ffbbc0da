"""The live world: tasks really run, in worker processes of this machine."""
