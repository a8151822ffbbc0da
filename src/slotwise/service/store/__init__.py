"""What was accepted and how it ended: a SQLite database with one writer."""
