"""Delays Ctrl-C until a batch is done."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def delayed_interrupt() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the block ends, so that no batch is counted in part; a second Ctrl-C is not delayed.

    Yields a function that returns whether Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread is interrupted
        return
    pressed: list[int] = []
    previous = signal.getsignal(signal.SIGINT)

    def note_interrupt(number: int, _frame: Any) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    signal.signal(signal.SIGINT, note_interrupt)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, previous)
    if pressed:
        raise KeyboardInterrupt
