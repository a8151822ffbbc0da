"""The session of a server, and what happens to its jobs."""
