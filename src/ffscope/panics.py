"""Errors of compiled libraries that read untrusted text or files, all raised as one exception.

Libraries written in Rust panic with pyo3's PanicException, which is not an `Exception`, so `except Exception` does not catch it.
Each library has its own PanicException class, so it can only be recognised by name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ffscope.errors import FfscopeError, first_line


class Unreadable(Exception):
    """A library failed to read something; `error` is the exception it raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(first_line(error))
        self.error = error


@contextmanager
def guarded() -> Iterator[None]:
    """Raise errors of compiled code as Unreadable; interrupts, exits, MemoryError and our own errors pass unchanged."""
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
