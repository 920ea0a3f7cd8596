"""What was read of a corpus: counts for study.json, and warnings about what was skipped."""

import logging
from collections import Counter
from typing import Any

from ffscope.options.corpus import CorpusOptions

logger = logging.getLogger(__name__)

_UNKNOWN_WARNING = 0.1  # share of unknown words above which a warning is logged


def summary(
    options: CorpusOptions, counts: Counter[str], skipped: dict[str, int], *, fingerprint: str
) -> dict[str, Any]:
    """The entry about the corpus in study.json."""
    sides = {
        name: {"sentences": counts[side], "prefixes": counts[f"{side} prefixes"]}
        for name, side in (("searched", "searched"), ("held_out", "held out"))
    }
    sides["held_out"]["documents"] = counts["documents held out"]
    return {
        "source": options.corpus,
        **{name: counts[name] for name in ("documents", "sentences", "prefixes", "cut", "duplicates")},
        **sides,
        "skipped": skipped,
        "fingerprint": fingerprint,
    }


def log_skipped(options: CorpusOptions, counts: Counter[str], skipped: dict[str, int]) -> None:
    """Warn about what was skipped or cut, and about a text that does not fit the model's words."""
    text = skipped_text(options, counts, skipped)
    if text:
        logger.warning("Read %d sentences%s.", counts["sentences"], text)
    unknown = counts["unknown"] / max(1, counts["prefixes"])
    if unknown > _UNKNOWN_WARNING:
        logger.warning(
            "%.0f %% of the words are not in the model's dictionary. It expects words and punctuation separated by spaces, as "
            "in WikiText's .tokens files.",
            100 * unknown,
        )


def skipped_text(options: CorpusOptions, counts: Counter[str], skipped: dict[str, int]) -> str:
    """What was skipped, as the end of a sentence."""
    parts = [f"{count} {what}" for what, count in skipped.items()]
    if counts["cut"]:
        parts.append(f"{counts['cut']} sentences cut at {options.max_tokens} tokens")
    if counts["duplicates"]:
        parts.append(f"{counts['duplicates']} duplicate sentences dropped")
    return "; " + ", ".join(parts) if parts else ""
