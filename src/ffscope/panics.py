"""Calls into compiled code that reads untrusted text or files: whatever goes wrong there becomes one ordinary error.

Libraries written in Rust panic with pyo3's PanicException, which is no `Exception` and so passes every `except Exception`. Each
library has a class of its own, so that it can only be recognised by its name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ffscope.errors import FfscopeError, first_line


class Unreadable(Exception):
    """What a library could not read; `error` is what it raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(first_line(error))
        self.error = error


@contextmanager
def guarded() -> Iterator[None]:
    """Turn what compiled code raises into Unreadable; interrupts, exits, a lack of memory and our own errors pass as they are."""
    try:
        yield
    except (FfscopeError, MemoryError, Unreadable):
        raise
    except Exception as error:
        raise Unreadable(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise Unreadable(error) from error
