"""Generate records for sorting."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from slotwise.core.errors import InputError
from slotwise.jobs.mapreduce.program import MapReduce, Pair

KEY_BYTES = 10
_PRINTABLE = bytes(ord(" ") + i % 95 for i in range(256))
_FILLER = "slotwise" * 7


class TeraGen(MapReduce):
    """Output: `records` lines of 100 bytes: a key of 10 printable characters, tab, 88 more, LF.

    The key is a pseudo-random function of `seed` and the number of the record. The value
    contains this number. Equal parameters give equal records, independent of the splits.
    """

    num_reducers = 0
    record_bytes = 100
    map_bytes_per_second = 30e6

    def __init__(self, records: int, seed: int = 0) -> None:
        if not isinstance(records, int) or records < 0:
            raise InputError(f"teragen: records is {records!r}; give a whole number >= 0")
        if not isinstance(seed, int):
            raise InputError(f"teragen: seed is {seed!r}; give a whole number")
        self.records_made = records
        self._seed = str(seed).encode()

    def map(self, key: int, value: None) -> Iterable[Pair]:
        """Return the record with this number."""
        digest = blake2b(key.to_bytes(8, "little"), digest_size=KEY_BYTES, key=self._seed[:64])
        name = digest.digest().translate(_PRINTABLE).decode("ascii")
        return ((name, f"{key:032d}{_FILLER}"),)
