"""A set of digests, stored on disk."""

import sqlite3
from collections.abc import Sequence


class DiskSet:
    """A set of digests in a temporary database, so that its use of memory is bounded."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -65536")  # in KiB; the rest is on disk
        self._database.execute("CREATE TABLE seen (number INTEGER PRIMARY KEY, digest BLOB UNIQUE)")
        self._database.execute("BEGIN")
        self._count = 0  # digests added so far, new or not

    def add(self, digests: Sequence[bytes]) -> list[bool]:
        """Add digests in order; returns for each whether it was new."""
        first = self._count
        self._count += len(digests)
        rows = zip(range(first, self._count), digests, strict=True)
        inserted = self._database.executemany("INSERT OR IGNORE INTO seen VALUES (?, ?)", rows).rowcount
        if inserted == len(digests):
            return [True] * len(digests)
        new = [False] * len(digests)
        for (number,) in self._database.execute("SELECT number FROM seen WHERE number >= ?", (first,)):
            new[number - first] = True
        return new

    def close(self) -> None:
        self._database.close()
