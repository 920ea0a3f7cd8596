"""Cancelling a request while it runs. No torch."""

from collections.abc import Callable

from ffscope.errors import FfscopeError

Stop = Callable[[], bool]
"""Called between layers, tokens and chunks; True cancels the request."""


class Stopped(FfscopeError):
    """A request that was cancelled."""

    def __init__(self) -> None:
        super().__init__("The request was cancelled.")


def never() -> bool:
    """For requests that cannot be cancelled."""
    return False


def raise_if_stopped(stop: Stop) -> None:
    """Raise `Stopped` if the request was cancelled."""
    if stop():
        raise Stopped
