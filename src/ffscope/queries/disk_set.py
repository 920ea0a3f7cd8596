"""A set of texts, stored on disk."""

import sqlite3
from hashlib import blake2b


class DiskSet:
    """A set of texts, stored as digests in a temporary database, so that its use of memory is bounded."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -16384")  # in KiB; the rest is on disk
        self._database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def add(self, text: str) -> bool:
        """Add a text; returns whether it is new."""
        digest = blake2b(text.encode(), digest_size=16).digest()
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1

    def close(self) -> None:
        self._database.close()
