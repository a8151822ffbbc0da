"""Channels between the nodes of a dataflow job: shared memory, TCP, files.

Every kind has a `Writer` and a `Reader` of records (`streams.py`) on a carrier of bytes
(`carriers.py`): `ring.py`, `tcp.py` or `files.py`. A task imports only the modules of the kinds
that it uses; pyarrow is imported only for Arrow records.
"""

from __future__ import annotations
