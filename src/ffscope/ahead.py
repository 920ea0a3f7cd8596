"""Prepares the next elements of an iterator in a thread, while the current one is used."""

import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import TypeVar

Element = TypeVar("Element")
_POLL = 0.1  # seconds


def ahead(
    elements: Iterable[Element], count: int, *, on_wait: Callable[[], None] = lambda: None
) -> Generator[Element, None, None]:
    """The same elements in order, up to `count` prepared ahead. `on_wait` is called now and then while none is ready."""
    ready: Queue[tuple[Element | None, BaseException | None]] = Queue(count)
    closed = threading.Event()

    def put(element: Element | None, error: BaseException | None) -> None:
        while not closed.is_set():
            with suppress(Full):
                ready.put((element, error), timeout=_POLL)
                return

    def prepare() -> None:
        try:
            for element in elements:
                put(element, None)
                if closed.is_set():
                    return
            put(None, StopIteration())
        except BaseException as error:  # raised again where the elements are used
            put(None, error)

    threading.Thread(target=prepare, name="ahead", daemon=True).start()
    try:
        while True:
            try:
                element, error = ready.get(timeout=_POLL)
            except Empty:
                on_wait()
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield element  # type: ignore[misc]
    finally:
        closed.set()
