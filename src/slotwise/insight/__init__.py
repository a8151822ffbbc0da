"""Metrics, bounds, explanations, replay and reports of runs, all from their logs."""
