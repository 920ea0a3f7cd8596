"""A one-line summary of a memory."""

from ffscope.queries.patterns import AnnotatedPattern

_TOKENS = 5


def gist(patterns: list[AnnotatedPattern] | None, promotes: list[str] | None, *, dead: bool) -> str:
    """What a memory fires on and what it promotes: `Fires on: ends with “of” · promotes ␣which ␣whom`.

    `patterns` is None before the patterns stage, `promotes` before the values stage.
    """
    parts = [_fires_on(patterns, dead=dead), _promotes(promotes)]
    return " · ".join(part for part in parts if part) or "Its patterns and its value have not been computed yet."


def _fires_on(patterns: list[AnnotatedPattern] | None, *, dead: bool) -> str:
    if dead:
        return "Fires on: no prefix of the corpus"
    if patterns is None:
        return ""
    return f"Fires on: {patterns[0].description}" if patterns else "Fires on: no pattern found"


def _promotes(tokens: list[str] | None) -> str:
    return f"promotes {' '.join(tokens[:_TOKENS])}" if tokens else ""
