"""Dataflow jobs: graphs of nodes that exchange records through channels."""
