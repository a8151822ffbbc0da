"""Processes that load and plan the code of users."""
