"""Dataflow jobs: graphs of nodes that exchange records through channels."""

from __future__ import annotations
