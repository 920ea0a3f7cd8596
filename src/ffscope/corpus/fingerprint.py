"""The fingerprint of a text: a digest of all its tokens."""

from hashlib import blake2b
from typing import Any

import numpy as np

from ffscope.axes import Array

_COLUMNS = ("tokens", "lengths", "next_tokens", "held_out")


class Fingerprint:
    """A digest of the sentences of a study, whatever the groups in which they are added."""

    def __init__(self) -> None:
        # One digest per column: then the bytes of a column do not depend on where the groups begin.
        self._digests: dict[str, Any] = {name: blake2b(digest_size=16) for name in _COLUMNS}

    def add(self, *, tokens: Array, lengths: Array, next_tokens: Array, held_out: Array) -> None:
        """Add sentences; their tokens are concatenated."""
        columns = {"tokens": tokens, "lengths": lengths, "next_tokens": next_tokens, "held_out": held_out}
        for name, digest in self._digests.items():
            kind = np.uint8 if name == "held_out" else "<i4"
            digest.update(np.ascontiguousarray(columns[name], dtype=kind))

    def __str__(self) -> str:
        return blake2b(b"".join(digest.digest() for digest in self._digests.values()), digest_size=16).hexdigest()
