"""Which sentences of a corpus become part of a study: no duplicates, and no more than the options allow."""

import logging
from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.paragraphs import Paragraph
from ffscope.corpus.sentences import DIGEST, Sentences
from ffscope.options.corpus import CorpusOptions
from ffscope.queries.disk_set import DiskSet

logger = logging.getLogger(__name__)

_NOT_READ = -1  # document of a paragraph after the end


class Selection:
    """Chooses sentences in order, and numbers their documents."""

    def __init__(self, options: CorpusOptions, counts: Counter[str]) -> None:
        """`counts` is updated with what is chosen."""
        self._options, self.counts = options, counts
        self.documents: list[dict[str, Any]] = []  # since the last part
        self._last = -1  # number of the last document
        self._digests = DiskSet() if options.dedupe else None
        self._corpus_end: int | None = None  # number of the first document of the held-out text
        self.failures: Counter[str] = Counter()
        self._skipped: dict[str, dict[str, int]] = {}  # by source

    @property
    def limited(self) -> bool:
        """Whether the limit of searched or held-out sentences is reached."""
        return self.enough(False) or self.enough(True)

    @property
    def skipped(self) -> dict[str, int]:
        """What was skipped, by reason."""
        return dict(sorted(sum(map(Counter, self._skipped.values()), self.failures).items()))

    def enough(self, held_out: bool) -> bool:
        """Whether there are as many searched or held-out sentences as the options allow."""
        limit = self._options.sentences
        return limit is not None and self.counts["held out" if held_out else "searched"] >= limit

    def wanted(self, paragraphs: list[Paragraph], sentences: Sentences) -> tuple[Array, Array]:
        """The indices of the sentences to keep, and the document of each paragraph."""
        limit, count = self._options.sentences, len(sentences.texts)
        if limit is None or max(self.counts["searched"], self.counts["held out"]) + count < limit:
            return self._all(paragraphs, sentences)
        return self._up_to_limit(paragraphs, sentences)

    def _all(self, paragraphs: list[Paragraph], sentences: Sentences) -> tuple[Array, Array]:
        documents = np.array([self._add_paragraph(paragraph) for paragraph in paragraphs])
        self._count_failures(sentences, set(range(len(paragraphs))))
        new = np.ones(len(sentences.texts), dtype=bool)
        if self._digests is not None:
            new = np.array(self._digests.add(_split_digests(sentences.digests)), dtype=bool)
        self.counts["duplicates"] += int((~new).sum())
        rows = np.flatnonzero(new)
        held_out = np.array([paragraph.held_out for paragraph in paragraphs])[sentences.paragraphs[rows]]
        self.counts.update({"searched": int((~held_out).sum()), "held out": int(held_out.sum())})
        return rows, documents

    def _up_to_limit(self, paragraphs: list[Paragraph], sentences: Sentences) -> tuple[Array, Array]:
        """The same, one by one, since the limit may be reached at any sentence."""
        documents, rows = np.full(len(paragraphs), _NOT_READ), []
        digests = _split_digests(sentences.digests)
        edges = np.searchsorted(sentences.paragraphs, np.arange(len(paragraphs) + 1)).tolist()
        for number, paragraph in enumerate(paragraphs):
            if self._past_the_end(paragraph):
                continue
            documents[number] = self._add_paragraph(paragraph)
            side = "held out" if paragraph.held_out else "searched"
            for row in range(edges[number], edges[number + 1]):
                if self.enough(paragraph.held_out):
                    break
                if self._digests is not None and not self._digests.add([digests[row]])[0]:
                    self.counts["duplicates"] += 1
                    continue
                self.counts[side] += 1
                rows.append(row)
        self._count_failures(sentences, set(np.flatnonzero(documents != _NOT_READ).tolist()))
        return np.array(rows, dtype=np.int64), documents

    def _past_the_end(self, paragraph: Paragraph) -> bool:
        """Whether a paragraph comes after the last one needed."""
        another_document = paragraph.document > self._last and self.counts["documents held out"] > 0
        late = self._options.held_out is None and self.enough(False) and another_document
        return late or self.enough(paragraph.held_out)

    def _add_paragraph(self, paragraph: Paragraph) -> int:
        """The number of a paragraph's document, which is added at its first paragraph."""
        if not self.enough(paragraph.source == 1):
            self._skipped[str(paragraph.source)] = paragraph.skipped
        if paragraph.source == 1 and self._corpus_end is None:
            self._corpus_end = self._last + 1
        number = paragraph.document + (self._corpus_end or 0)
        if number > self._last:
            self._last = number
            self.counts.update({"documents": 1, "documents held out": int(paragraph.held_out)})
            row = {"document": number, "title": paragraph.title, "topic": paragraph.topic}
            self.documents.append({**row, "held_out": paragraph.held_out})
        return number

    def _count_failures(self, sentences: Sentences, paragraphs: set[int]) -> None:
        """Count the paragraphs that caused errors; the first of each kind is logged with its reason."""
        for failure in sentences.failures:
            if failure.paragraph in paragraphs:
                if not self.failures[failure.what]:
                    logger.warning("The corpus has %s: %s.", failure.what, failure.reason)
                self.failures[failure.what] += 1

    def end_of_source(self, source: int, skipped: Counter[str]) -> None:
        """Call when a source is read to its end; what was skipped after the limit is not counted."""
        if not self.enough(source == 1):
            self._skipped[str(source)] = dict(skipped)

    def remember(self, texts: Iterable[Any]) -> None:
        """Add the sentences of an interrupted run to those that are not repeated."""
        if self._digests is not None:
            self._digests.add([blake2b(text.as_py().encode(), digest_size=DIGEST).digest() for text in texts])

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {
            "last": self._last,
            "corpus_end": self._corpus_end,
            "failures": self.failures,
            "skipped": self._skipped,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from the state of an interrupted run."""
        self._last, self._corpus_end = state["last"], state["corpus_end"]
        self.failures.update(state["failures"])
        self._skipped = state["skipped"]

    def close(self) -> None:
        """Release the digests."""
        if self._digests is not None:
            self._digests.close()


def _split_digests(digests: bytes) -> list[bytes]:
    return [digests[start : start + DIGEST] for start in range(0, len(digests), DIGEST)]
