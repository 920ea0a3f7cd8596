"""What prefixes are about: the topics and titles of their documents, and the words that tell them from other text."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.patterns.candidates import CONTENT, Codes, Form, mixed
from ffscope.patterns.describe import quoted
from ffscope.patterns.prefixes import Prefixes
from ffscope.study.folder import Study

_PRIOR = 500.0  # content words of the text at large that every group is thought to hold besides its own
_TOLD = 3  # words that say what a group is about


@dataclass(frozen=True)
class Documents:
    """The topic of every document (-1 where it has none), the topics' names, the titles, and groups of documents of one meaning."""

    topic: Array
    topics: list[str]
    titles: list[str | None]
    groups: list[Array]

    def forms(self) -> tuple[Form, ...]:
        """What prefixes of one subject may share: content words, a topic, a document, documents of one meaning."""
        grouped = [Form(f"group {number}", partial(self._labels, labels)) for number, labels in enumerate(self.groups)]
        return CONTENT, Form("topic", partial(self._labels, self.topic)), Form("document", self._documents), *grouped

    def _labels(self, labels: Array, prefixes: Prefixes) -> Codes:
        found = labels[prefixes.sentences.document[prefixes.row]]
        return np.flatnonzero(found >= 0), mixed(found[found >= 0])

    def _documents(self, prefixes: Prefixes) -> Codes:
        return np.arange(len(prefixes)), mixed(prefixes.sentences.document[prefixes.row])

    def name(self, form: str, prefixes: Prefixes, row: int) -> str:
        """A topic or a document in words."""
        document = int(prefixes.sentences.document[prefixes.row[row]])
        if form == "topic":
            return f"topic {quoted(self.topics[self.topic[document]])}"
        title = self.titles[document]
        return f"one document, {quoted(title)}" if title else "one document"


def read_documents(study: Study) -> Documents:
    """The topics and titles that a corpus came with."""
    table = pq.read_table(study.path("documents.parquet")).to_pydict()
    numbers: dict[str, int] = {}
    count = max(table["document"], default=-1) + 1
    topic = np.full(count, -1)
    titles: list[str | None] = [None] * count
    for document, named, title in zip(table["document"], table["topic"], table["title"], strict=True):
        titles[document] = title
        if named:
            topic[document] = numbers.setdefault(named, len(numbers))
    return Documents(topic, list(numbers), titles, [])


class Words:
    """The content words of the text at large, to say what is special about a few prefixes."""

    def __init__(self, sample: Prefixes) -> None:
        lexicon = sample.sentences.lexicon
        rows = np.unique(sample.row)
        counted = np.zeros(len(sample.sentences.number), dtype=bool)
        counted[rows] = True
        words = sample.sentences.words[np.repeat(counted, np.diff(sample.sentences.starts))]
        words = words[lexicon.content[words]]
        self.lexicon = lexicon
        self.counts = np.bincount(lexicon.lemma[words], minlength=len(lexicon.folds)).astype(np.float64)

    def telling(self, prefixes: Prefixes, rows: list[int]) -> list[str]:
        """The words that set some prefixes apart, by log-odds with the text at large as informative prior (Monroe et al., 2008)."""
        some = prefixes.take(np.array(rows))
        owner, place = some.spread()
        whole = np.flatnonzero(~some.part)
        words = np.concatenate([some.sentences.words[place], some.word[whole]])
        tells = self.lexicon.content[words]
        pairs = np.unique(np.stack([np.concatenate([owner, whole])[tells], self.lexicon.lemma[words[tells]]]), axis=1)
        lemma, count = np.unique(pairs[1], return_counts=True)
        if not len(lemma):
            return []
        score = self._log_odds(lemma, count.astype(np.float64))
        recurring = score - 1e3 * (count < 2)  # a word of one prefix says less than one that recurs
        best = lemma[np.lexsort((lemma, -recurring))][:_TOLD]
        return [self.lexicon.folds[one] for one in best]

    def _log_odds(self, lemma: Array, count: Array) -> Array:
        total = self.counts.sum() + 1
        prior = _PRIOR * (self.counts[lemma] + 0.5) / total
        here, there = count + prior, self.counts[lemma] + prior
        all_here, all_there = count.sum() + _PRIOR, total + _PRIOR
        odds = np.log(here / (all_here - here)) - np.log(there / (all_there - there))
        return odds / np.sqrt(1 / here + 1 / there)
