"""Channels between the nodes of a dataflow job: shared memory, TCP, files.

Every kind is a `Writer` and a `Reader` of records (`streams.py`) on something that carries
bytes (`carriers.py`): `ring.py`, `tcp.py`, `files.py`, `spilling.py`. A task of a job imports
the modules of the kinds that it uses; only an Arrow record imports pyarrow.
"""

from __future__ import annotations
