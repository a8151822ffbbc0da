"""Installed programs; each module is imported on first use."""
