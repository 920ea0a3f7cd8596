"""What a memory does, in one line."""

from ffscope.queries.patterns import Found

_TOKENS = 5


def gist(patterns: list[Found] | None, promotes: list[str] | None, *, dead: bool) -> str:
    """On what a memory fires and what it promotes: `Fires on: ends with “of” · promotes ␣which ␣whom`.

    `patterns` is None where nobody has searched for any, `promotes` where the values have not been read.
    """
    parts = [_fires_on(patterns, dead=dead), _promotes(promotes)]
    return " · ".join(part for part in parts if part) or "Its patterns and its value have not been read yet."


def _fires_on(patterns: list[Found] | None, *, dead: bool) -> str:
    if dead:
        return "Fires on: no prefix of the corpus"
    if patterns is None:
        return ""
    return f"Fires on: {patterns[0].description}" if patterns else "Fires on: no pattern found"


def _promotes(tokens: list[str] | None) -> str:
    return f"promotes {' '.join(tokens[:_TOKENS])}" if tokens else ""
