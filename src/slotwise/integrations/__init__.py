"""Integrations with other libraries; each module imports one of them."""
