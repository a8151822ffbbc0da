"""Clients of a server: requests, futures, results."""
