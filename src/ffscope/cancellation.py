"""Cancelling requests while they run; no torch."""

from collections.abc import Callable

from ffscope.errors import FfscopeError

Stop = Callable[[], bool]
"""Called between layers, tokens and chunks; True cancels the request."""


class Stopped(FfscopeError):
    """A request that was cancelled."""

    def __init__(self) -> None:
        super().__init__("The request was cancelled.")


def never() -> bool:
    """A `Stop` that never cancels."""
    return False


def raise_if_stopped(stop: Stop) -> None:
    """Raise `Stopped` if the request is cancelled."""
    if stop():
        raise Stopped
