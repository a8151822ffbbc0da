"""A plugin of pytest: joblib's own tests of parallel loops, with the backend "slotwise".

These tests list the backends that they try at the top of their module. The module is loaded
with this backend in place of those that joblib tests itself.
"""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest

import slotwise.integrations.joblib  # noqa: F401

SUITE = "joblib.test.test_parallel"

LISTS = {
    r"PROCESS_BACKENDS = \[.*\]": 'PROCESS_BACKENDS = ["slotwise"]',
    r"PARALLEL_BACKENDS = .*": 'PARALLEL_BACKENDS = ["slotwise"]',
    r"ALL_VALID_BACKENDS = .*": 'ALL_VALID_BACKENDS = ["slotwise"]',
    r"RETURN_GENERATOR_BACKENDS = .*": 'RETURN_GENERATOR_BACKENDS = {"slotwise": None}',
}


def pytest_configure(config: pytest.Config) -> None:
    """Load the module of the tests."""
    for marker in ("timeout(seconds)", "thread_unsafe", "no_cover"):
        config.addinivalue_line("markers", marker)
    spec = importlib.util.find_spec(SUITE)
    assert spec is not None
    assert spec.origin is not None
    with open(spec.origin, encoding="utf-8") as file:
        source = file.read()
    for old, new in LISTS.items():
        source, count = re.subn(old, new, source)
        assert count >= 1, old
    module = importlib.util.module_from_spec(spec)
    sys.modules[SUITE] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)
