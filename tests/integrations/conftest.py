"""The session, or client of a server, on which collections and loops run."""

from sessions.conftest import of_sessions_only, server, session

__all__ = ["of_sessions_only", "server", "session"]
