"""A set of texts that lies on the disk."""

import sqlite3
from hashlib import blake2b


class DiskSet:
    """Texts met so far, kept by their digests in a temporary database, so that memory does not grow with them."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -16384")  # in KiB; more goes to the disk
        self._database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def new(self, text: str) -> bool:
        """Whether this text was not met before; from now on it was."""
        digest = blake2b(text.encode(), digest_size=16).digest()
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1

    def close(self) -> None:
        self._database.close()
