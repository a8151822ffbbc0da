"""The record of a run: one log format for every backend."""
