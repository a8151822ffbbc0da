"""Connections to other libraries; each module imports one of them."""
