"""What it costs: penalties, and their sum or maximum."""
