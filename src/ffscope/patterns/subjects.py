"""The subjects of prefixes: the topics and titles of their documents, and the words that distinguish them from other text."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.patterns.describe import quoted
from ffscope.patterns.forms import CONTENT, Codes, Form, hashed
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.word_vectors import WordVectors
from ffscope.study.folder import Study

_PRIOR = 500.0  # pseudo-counts: content words of the corpus that are added to every group
_NAMED = 3  # words that describe a group
_OCCURRENCES = 5  # of a word in the sample for it to name a subject
_EXAMINED = 20  # words from which inflections of one word are removed
_OWN = 0.1  # the similarity that a word of the prefixes themselves has ahead of other words


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

    def topic_name(self, prefixes: Prefixes, row: int) -> str:
        """The topic of a prefix that has one, in words."""
        return f"topic {quoted(self.topics[self.topic[self._document(prefixes, row)]])}"

    def title(self, prefixes: Prefixes) -> str | None:
        """The title of the document that some prefixes come from, if it has one."""
        title = self.titles[self._document(prefixes, 0)]
        return quoted(title) if title else None

    def _document(self, prefixes: Prefixes, row: int) -> int:
        return int(prefixes.sentences.document[prefixes.row[row]])


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


class SubjectWords:
    """Names for subjects: the content words of the corpus whose vectors are nearest to a group of prefixes."""

    def __init__(self, sample: Prefixes, vectors: WordVectors) -> None:
        lexicon = sample.sentences.lexicon
        rows = np.unique(sample.row)
        counted = np.zeros(len(sample.sentences.number), dtype=bool)
        counted[rows] = True
        words = sample.sentences.words[np.repeat(counted, np.diff(sample.sentences.starts))]
        words = words[lexicon.content[words]]
        self.lexicon = lexicon
        self.counts = np.bincount(lexicon.folded[words], minlength=len(lexicon.folds)).astype(np.float64)
        self.named = np.flatnonzero((self.counts >= _OCCURRENCES) & vectors.counted)
        self.vectors = vectors.vectors[self.named]

    def describe(self, prefixes: Prefixes, centre: Array) -> str:
        """The words that name the subject of some prefixes, given the sum of their vectors."""
        words, count = self._words_of(prefixes)
        if np.abs(centre).sum() > 0 and len(self.named):
            score = self.vectors @ centre / max(float(np.linalg.norm(centre)), 1e-9)
            score[np.searchsorted(self.named, words[np.isin(words, self.named)])] += _OWN
            order = self.named[np.argsort(-score, kind="stable")[:_EXAMINED]]
        else:
            order = words[np.argsort(-self._log_odds(words, count), kind="stable")]
        _, first = np.unique(self.lexicon.lemma_folds[order], return_index=True)  # one inflection of each word
        return ", ".join(quoted(self.lexicon.folds[word])[1:-1] for word in order[np.sort(first)][:_NAMED])

    def _words_of(self, prefixes: Prefixes) -> tuple[Array, Array]:
        """The content words of some prefixes, and in how many of them each occurs."""
        owner, place = prefixes.words_before_last()
        whole = np.flatnonzero(~prefixes.part)
        words = np.concatenate([prefixes.sentences.words[place], prefixes.word[whole]])
        content = self.lexicon.content[words]
        pairs = np.stack([np.concatenate([owner, whole])[content], self.lexicon.folded[words[content]]])
        return np.unique(np.unique(pairs, axis=1)[1], return_counts=True)

    def _log_odds(self, words: Array, count: Array) -> Array:
        """How typical words are of a group, with the corpus as informative prior (Monroe et al., 2008)."""
        total = self.counts.sum() + 1
        prior = _PRIOR * (self.counts[words] + 0.5) / total
        group, corpus = count + prior, self.counts[words] + prior
        group_total, corpus_total = count.sum() + _PRIOR, total + _PRIOR
        odds = np.log(group / (group_total - group)) - np.log(corpus / (corpus_total - corpus))
        return odds / np.sqrt(1 / group + 1 / corpus)
