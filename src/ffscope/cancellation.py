"""Requests that are taken back while they run; no torch."""

from collections.abc import Callable

from ffscope.errors import FfscopeError

Stop = Callable[[], bool]
"""Asked between layers, tokens and chunks; True ends the request."""


class Stopped(FfscopeError):
    """A request that was cancelled."""

    def __init__(self) -> None:
        super().__init__("The request was cancelled.")


def never() -> bool:
    """For requests that nobody takes back."""
    return False


def heed(stop: Stop) -> None:
    """Raise `Stopped` where that is asked for."""
    if stop():
        raise Stopped
