"""A process that splits paragraphs into sentences for another one.

It reads a pickled splitter from its standard input, then lists of paragraphs, and writes an answer to each to its standard output:
the result, or an error message. It ends when its input does.
"""

import os
import pickle
import sys
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """The result of one request; `error` is None if it succeeded."""

    result: Any = None
    error: str | None = None


def main() -> None:
    """Answer requests until the input ends."""
    # Nothing else may be written to the answers, such as a library's messages.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    splitter: Any = None
    while True:
        try:
            request = pickle.load(requests)
        except EOFError:
            return
        except Exception as error:  # the tokenizer's class cannot be imported here
            answer = Answer(error=f"{type(error).__name__}: {error}")
        else:
            answer, splitter = _answer(splitter, request)
        try:
            pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
        except BrokenPipeError:  # the process that asked has gone
            return


def _answer(splitter: Any, request: Any) -> tuple[Answer, Any]:
    """The answer to a request, and the splitter for the next ones."""
    if splitter is None:
        return Answer(), request
    try:
        return Answer(splitter.split(request)), splitter
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}"), splitter
