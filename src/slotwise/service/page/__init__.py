"""The page of a server or a session, and its stream."""
