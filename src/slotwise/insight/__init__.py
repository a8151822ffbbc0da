"""What a run means: metrics, bounds, explanations, replay and reports, all from its log."""
