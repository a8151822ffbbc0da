"""The process of a server, its sockets and its routes."""
