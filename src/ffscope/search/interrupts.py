"""Ctrl-C that waits until a batch is done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def delayed_interrupt() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the block ends, so that a batch counts wholly or not at all; a second Ctrl-C is not delayed.

    Gives a function that says whether Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is interrupted
        return
    pressed: list[int] = []
    usual = signal.getsignal(signal.SIGINT)

    def wait(number: int, _frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, wait)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, usual)
    if pressed:
        raise KeyboardInterrupt
