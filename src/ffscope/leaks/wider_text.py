"""How often completions occur in a larger text than the study's, such as all that a model was trained on."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from ffscope.corpus.documents import Corpus
from ffscope.progress import Progress, ProgressCallback
from ffscope.study.resumable import ResumableFolder

_CONTEXT = 20  # characters
_EVERY = 200  # documents between two reports of the progress
_FILE = "wider-text.json"


@dataclass
class WiderOccurrences:
    """Of one string: at how many places of a text it occurs, and in which contexts, the characters before it."""

    places: int = 0
    contexts: set[str] = field(default_factory=set)

    def others(self, prefix: str) -> int:
        """In how many contexts other than that of this prefix it occurs."""
        return len(self.contexts - {prefix[-_CONTEXT:]})


def count_in_text(
    corpus: Corpus, strings: Sequence[str], folder: ResumableFolder, progress: ProgressCallback
) -> list[WiderOccurrences]:
    """The occurrences of strings in the paragraphs of a corpus; once they are counted, they are kept in the folder."""
    if folder.missing([_FILE]):
        with folder.writing(_FILE) as path:
            rows = _count(corpus, strings, progress)
            path.write_text(json.dumps([[row.places, sorted(row.contexts)] for row in rows]), encoding="utf-8")
    kept = json.loads(folder.path(_FILE).read_text(encoding="utf-8"))
    return [WiderOccurrences(places, set(contexts)) for places, contexts in kept]


def _count(corpus: Corpus, strings: Sequence[str], progress: ProgressCallback) -> list[WiderOccurrences]:
    rows = [WiderOccurrences() for _ in strings]
    number = 0
    for number, document in enumerate(corpus, start=1):
        if strings:
            for paragraph in document.paragraphs:
                _add(paragraph, strings, rows)
        if number % _EVERY == 0:
            progress(Progress("wider text", number, unit="documents"))
    progress(Progress("wider text", number, number, unit="documents"))
    return rows


def _add(paragraph: str, strings: Sequence[str], rows: Sequence[WiderOccurrences]) -> None:
    for string, row in zip(strings, rows, strict=True):
        at = paragraph.find(string)
        while at >= 0:
            row.places += 1
            row.contexts.add(paragraph[max(0, at - _CONTEXT) : at])
            at = paragraph.find(string, at + 1)
