"""The subjects of prefixes: the topics and titles of their documents, and the words that distinguish them from other text."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.patterns.candidates import CONTENT, Codes, Form, hashed
from ffscope.patterns.describe import quoted
from ffscope.patterns.prefixes import Prefixes
from ffscope.study.folder import Study

_PRIOR = 500.0  # pseudo-counts: content words of the corpus that are added to every group
_NAMED = 3  # words that describe a group


@dataclass(frozen=True)
class Documents:
    """The topic of every document (-1 for none), the topics' names, the titles, and clusterings of the documents by meaning."""

    topic: Array
    topics: list[str]
    titles: list[str | None]
    groups: list[Array]

    def forms(self) -> tuple[Form, ...]:
        """What prefixes on one subject may share: content words, a topic, a document, a cluster of documents."""
        grouped = [Form(f"group {number}", partial(self._labels, labels)) for number, labels in enumerate(self.groups)]
        return CONTENT, Form("topic", partial(self._labels, self.topic)), Form("document", self._documents), *grouped

    def _labels(self, labels: Array, prefixes: Prefixes) -> Codes:
        prefix_labels = labels[prefixes.sentences.document[prefixes.row]]
        return np.flatnonzero(prefix_labels >= 0), hashed(prefix_labels[prefix_labels >= 0])

    def _documents(self, prefixes: Prefixes) -> Codes:
        return np.arange(len(prefixes)), hashed(prefixes.sentences.document[prefixes.row])

    def name(self, form: str, prefixes: Prefixes, row: int) -> str:
        """A topic or a document, described in words."""
        document = int(prefixes.sentences.document[prefixes.row[row]])
        if form == "topic":
            return f"topic {quoted(self.topics[self.topic[document]])}"
        title = self.titles[document]
        return f"one document, {quoted(title)}" if title else "one document"


def read_documents(study: Study) -> Documents:
    """The topics and titles that come with the corpus."""
    table = pq.read_table(study.path("documents.parquet")).to_pydict()
    numbers: dict[str, int] = {}
    count = max(table["document"], default=-1) + 1
    topic = np.full(count, -1)
    titles: list[str | None] = [None] * count
    for document, topic_name, title in zip(table["document"], table["topic"], table["title"], strict=True):
        titles[document] = title
        if topic_name:
            topic[document] = numbers.setdefault(topic_name, len(numbers))
    return Documents(topic, list(numbers), titles, [])


class ContentWords:
    """Counts of the content words of the corpus, to find those that are typical of a few prefixes."""

    def __init__(self, sample: Prefixes) -> None:
        lexicon = sample.sentences.lexicon
        rows = np.unique(sample.row)
        counted = np.zeros(len(sample.sentences.number), dtype=bool)
        counted[rows] = True
        words = sample.sentences.words[np.repeat(counted, np.diff(sample.sentences.starts))]
        words = words[lexicon.content[words]]
        self.lexicon = lexicon
        self.counts = np.bincount(lexicon.lemma[words], minlength=len(lexicon.folds)).astype(np.float64)

    def distinctive(self, prefixes: Prefixes, rows: list[int]) -> list[str]:
        """The words that distinguish some prefixes, by log-odds with the corpus as informative prior (Monroe et al., 2008)."""
        chosen = prefixes.take(np.array(rows))
        owner, place = chosen.words_before_last()
        whole = np.flatnonzero(~chosen.part)
        words = np.concatenate([chosen.sentences.words[place], chosen.word[whole]])
        is_content = self.lexicon.content[words]
        pairs = np.unique(
            np.stack([np.concatenate([owner, whole])[is_content], self.lexicon.lemma[words[is_content]]]), axis=1
        )
        lemma, count = np.unique(pairs[1], return_counts=True)
        if not len(lemma):
            return []
        score = self._log_odds(lemma, count.astype(np.float64))
        recurring = score - 1e3 * (count < 2)  # words that recur come before those of a single prefix
        best = lemma[np.lexsort((lemma, -recurring))][:_NAMED]
        return [self.lexicon.folds[number] for number in best]

    def _log_odds(self, lemma: Array, count: Array) -> Array:
        total = self.counts.sum() + 1
        prior = _PRIOR * (self.counts[lemma] + 0.5) / total
        group, corpus = count + prior, self.counts[lemma] + prior
        group_total, corpus_total = count.sum() + _PRIOR, total + _PRIOR
        odds = np.log(group / (group_total - group)) - np.log(corpus / (corpus_total - corpus))
        return odds / np.sqrt(1 / group + 1 / corpus)
