"""The kinds of planted memories: for each, its instances in a text as masks over prefixes, with what a description must name."""

import re
from dataclasses import dataclass, field

import numpy as np

LEAST = 30  # sentences that must have a prefix of the planted kind
SETS = {
    "direction": "north south east west northern southern eastern western northeast southwest",
    "month": "january february march april june july august september october november december",
    "day": "monday tuesday wednesday thursday friday saturday sunday",
    "colour|color": "red green blue yellow white black brown orange purple grey pink",
    "number": "two three four five six seven eight nine ten twelve",
    "family|relative": "father mother son daughter brother sister wife husband parents children uncle",
    "metal": "iron gold silver copper lead tin zinc steel bronze mercury aluminium nickel",
    "animal": "cattle sheep horses dogs birds fish insects mammals reptiles whales horse dog",
    "countr(?:y|ies)": "france germany italy spain china india japan russia egypt greece brazil mexico",
    "language|nationalit(?:y|ies)": "french german italian spanish chinese indian japanese russian greek arabic latin english",
    "body|bodies": "head heart brain skin blood hand hands eyes body bone muscle lungs",
    "profession|occupation|person": "writer poet composer painter philosopher physicist king emperor actor singer politician",
    "unit|time": "years months weeks days hours minutes seconds decades centuries metres kilometres miles",
    "adverb|frequency": "often usually sometimes always never generally commonly typically frequently",
    "science|discipline": "physics chemistry biology mathematics philosophy astronomy medicine geology economics psychology",
    "food|crop": "rice wheat corn maize sugar milk meat tea coffee cotton fruit vegetables",
    "war|military": "war battle army navy troops soldiers forces invasion conflict siege",
    "settlement|place": "city town village capital province region district state",
    "ordinal": "first second third fourth fifth sixth",
    "pronoun": "he she they we it i you",
    "material": "wood stone glass paper metal water sand clay plastic",
    "religion": "buddhism christianity islam hinduism judaism catholic protestant orthodox",
}
SKIPS = (
    "from to, was by, both and, not but, between and, as as, more than, the of, one of, is by, known for, known as, "
    "such and, most of, it its, he his, also as, part of, born in, either or, either and, in and, used to, has been, by and, "
    "are in, their and, these are, with and, located in, considered of, into the, was he"
)
_POSITION = r"word of|words of|first|second|third|position|start|begin|words? (?:in|into)"
FORMS = {  # pattern of the last word, or a function of the text; what a right description says
    "ends in -ed": (r"^[a-z]{3,}ed$", r"[-“–…]ed\b|past|participle|verb"),
    "ends in -ly": (r"^[a-z]{2,}ly$", r"[-“–…]ly\b|adverb"),
    "ends in -ing": (r"^[a-z]{3,}ing$", r"[-“–…]ing\b|gerund|participle|verb"),
    "ends in -tion": (r"^[a-z]{2,}tion$", r"[-“–…]t?ion\b"),
    "ends in -s": (r"^[a-z]{3,}[^s\W]s$", r"[-“–…]s\b|plural"),
    "begins with un-": (r"^[Uu]n[a-z]{4,}$", r"\bun[-…–”]|prefix"),
    "begins with re-": (r"^[Rr]e[a-z]{4,}$", r"\bre[-…–”]|prefix"),
    "after a number": (lambda text: text.previous(r"^\d+$"), r"number|digit|numeral|year|figure"),
    "after a or an": (lambda text: text.previous(r"^[Aa]n?$"), r"“an?”|article"),
    "after a capitalised word": (lambda text: text.previous(r"^[A-Z][a-z]+$"), r"capital|\bname"),
    "after a comma": (lambda text: text.gap == ", ", r"comma|“,”"),
    "after an opening bracket": (lambda text: np.char.endswith(text.gap, "("), r"bracket|parenthes|“\(”"),
    "long word": (r"^[^\W\d_]{10,}$", r"letters|long|characters"),
    "short word": (r"^[^\W\d_]{1,3}$", r"letters|short|characters"),
    "second word": (lambda text: text.index == 1, _POSITION),
    "third word": (lambda text: text.index == 2, _POSITION),
    "first five words": (lambda text: text.index < 5, _POSITION),
    "beyond the 25th word": (lambda text: text.index >= 25, rf"{_POSITION}|beyond|later|long|after"),
    "capitalised word": (r"^[A-Z][a-z]+$", r"capital|\bname"),
    "all capitals": (r"^[A-Z]{2,}$", r"capital|upper"),
    "number": (r"^\d+$", r"number|digit|year"),
}
PIECE = r"piece|part of a (?:\w+ )?word|(?:inside|within|middle of) a (?:\w+ )?word|sub-?word"
CLASSES = {"capitalised word": r"capital|\bname", "piece inside a word": PIECE, "number": r"number|digit|year"}
SUBJECTS = (
    "composer river physicist element emperor birds painter mathematician language island philosopher poet king president "
    "mammals sport dynasty disease actor filmmaker instrument genre mountain politician constellation chemist novelist singer "
    "fish insects fruit organ lake religion conflict food city province unit compound genus plants computer game star "
    "architect empire ocean novel writer country particle drug film deity vehicle software weapon clothing"
)


@dataclass
class Instance:
    """One thing to plant: the prefixes that have it, and what a description must name."""

    name: str
    mask: np.ndarray
    words: list[str] = field(default_factory=list)  # words that a description must name
    pattern: str = ""  # a regular expression that a description must match
    naming: list[str] = field(default_factory=list)  # stems of words that tell documents of the topic from the others
    silent: np.ndarray | None = None  # prefixes whose coefficient is exactly 0
    recurring: np.ndarray | None = None  # prefixes of the class that share their last word


def sets(text, generator):
    for label, listed in SETS.items():
        counts = {word: int(text.ending_with(word).sum()) for word in listed.split()}
        words = [word for word, count in counts.items() if count >= 3][:12]
        cap = 2 * np.mean([counts[word] for word in words]) if words else 0  # no single word is most of the set
        members = [text.ending_with(word) & (generator.random(len(text.of)) < cap / counts[word]) for word in words]
        mask = np.logical_or.reduce(members) if members else np.zeros(len(text.of), dtype=bool)
        if len(words) >= 4 and mask.sum() >= 40:
            yield Instance(f"set: {', '.join(words)}", mask, words, label)


def pieces(text, generator):
    capital = text.words_like(r"^[A-Z][a-z]+$")[text.word] & (text.piece >= 0)
    letters = text.words_like(r"^[^\W\d_]+$")[text.word]
    yield Instance("second piece", letters & (text.piece == 1), pattern=PIECE)
    yield Instance("last piece", letters & text.whole & (text.piece > 0), pattern=PIECE)
    yield Instance("first piece of a capitalised word", capital & (text.piece == 0) & (text.pieces > 1), pattern=PIECE)
    yield Instance("second piece of a capitalised word", capital & (text.piece == 1), pattern=PIECE)


def skips(text, generator):
    for pair in SKIPS.split(", "):
        earlier, last = pair.split()
        flags, distance = text.earlier(earlier)
        mask = text.ending_with(last) & flags
        spread = np.bincount(distance[mask], minlength=7)
        if text.in_sentences(mask) >= LEAST and spread.max() < 0.8 * spread.sum():
            yield Instance(f"{earlier} … {last}", mask, [earlier, last])


def forms(text, generator):
    for name, (shape, pattern) in FORMS.items():
        flags = text.words_like(shape) if isinstance(shape, str) else shape(text)
        mask = text.with_words(flags)
        if text.in_sentences(mask) >= LEAST:
            yield Instance(name, mask, pattern=pattern)


def finer(text, generator):
    """A class of last words in which one last word, or token, recurs."""
    inside = text.with_words(text.words_like(r"^[A-Z][a-z]+$") & (text.index > 0))
    number = text.with_words(text.words_like(r"^\d+$"))
    letters = text.words_like(r"^[^\W\d_]+$")[text.word]
    masks = [(inside, text.last), (letters & (text.piece > 0), text.token), (number, text.last)]
    for (name, pattern), (mask, ends) in zip(CLASSES.items(), masks, strict=True):
        values, counts = np.unique(ends[mask], return_counts=True)
        fitting = [
            value
            for value, count in zip(values, counts, strict=True)
            if 8 <= count <= max(0.03 * mask.sum(), 12) and text.in_sentences(mask & (ends == value)) >= 8
        ]
        for value in generator.permutation(fitting)[:12]:
            word = text.vocabulary[value] if name.startswith("piece") else str(text.lower_words[value])
            if len(word) > 1 and word.isalnum():
                yield Instance(f"{name}, {word}", mask, [word], pattern, recurring=mask & (ends == value))


def topics(text, generator):
    for topic in sorted(set(text.topics) - {""}):
        documents = text.topics == topic
        yield Instance(topic, text.about(documents), naming=text.naming(documents))


def subjects(text, generator):
    for word in SUBJECTS.split():
        shape = re.compile(rf"\b{word.removesuffix('s')}(?:s|es)?\b")
        documents = np.array([bool(shape.search(description)) for description in text.descriptions])
        mask = text.about(documents)
        if text.in_sentences(mask) >= LEAST and len(np.unique(text.document[text.of[mask]])) >= 5:
            yield Instance(word, mask, naming=text.naming(documents))


def last_words(text, generator):
    for number in generator.permutation(_frequent(text, text.last, 40, 2000))[:100]:
        word = str(text.lower_words[number])
        yield Instance(word, text.last == number, [word])


def two_words(text, generator):
    pair = np.where(text.before >= 0, text.before * len(text.lower_words) + text.last, -1)
    values, counts = np.unique(pair[pair >= 0], return_counts=True)
    for value in generator.permutation(values[counts >= 40])[:100]:
        words = [str(text.lower_words[number]) for number in divmod(value, len(text.lower_words))]
        yield Instance(" ".join(words), pair == value, words)


def words_before(text, generator):
    for number in generator.permutation(_frequent(text, text.before, 60, 2000))[:100]:
        word = str(text.lower_words[number])
        yield Instance(f"{word} …", text.before == number, [word])


def near_misses(text, generator):
    """Forms that fire only together with something else. The kinds alternate."""
    kinds = [_word_and_topic(text, generator), _word_and_earlier(text, generator), _number_after(text, generator)]
    while kinds:
        for kind in list(kinds):
            instance = next(kind, None)
            if instance is None:
                kinds.remove(kind)
            else:
                yield instance


def _word_and_topic(text, generator):
    for number in generator.permutation(_frequent(text, text.last, 150, 20000))[:40]:
        ends = (text.last == number) & (text.count >= 5)
        names, counts = np.unique(text.topics[text.document[text.of[ends]]], return_counts=True)
        fitting = [name for name, count in zip(names, counts, strict=True) if name and 40 <= count < 0.4 * ends.sum()]
        if fitting:
            topic, word = generator.choice(fitting), str(text.lower_words[number])
            documents = text.topics == topic
            mask, naming = ends & documents[text.document[text.of]], text.naming(documents)
            yield Instance(f"{word} in {topic}", mask, [word], naming=naming, silent=(text.last == number) & ~mask)


def _word_and_earlier(text, generator):
    skips_here = [instance for instance in skips(text, generator) if len(set(instance.words)) == 2]
    for place in generator.permutation(len(skips_here)):
        earlier, last = skips_here[place].words
        ends, mask = text.ending_with(last), skips_here[place].mask
        if mask.sum() < 0.5 * ends.sum():
            yield Instance(f"{last} only after {earlier}", mask, [earlier, last], silent=ends & ~mask)


def _number_after(text, generator):
    numbers = text.with_words(text.words_like(r"^\d+$"))
    for number in generator.permutation(_frequent(text, np.where(numbers, text.before, -1), 30, 20000)):
        mask, word = numbers & (text.before == number), str(text.lower_words[number])
        if mask.sum() < 0.6 * numbers.sum() and text.in_sentences(mask) >= 25:
            yield Instance(f"number after {word}", mask, [word], CLASSES["number"], silent=numbers & ~mask)


def _frequent(text, values, least, most):
    """The words of three letters or more that occur this often among some values; -1 is no word."""
    counts = np.bincount(values[values >= 0], minlength=len(text.lower_words))
    fitting = np.flatnonzero((counts >= least) & (counts <= most))
    return [number for number in fitting if text.lower_words[number].isalpha() and len(text.lower_words[number]) > 1]


KINDS = {
    "set": sets,
    "piece": pieces,
    "skip-gram": skips,
    "form": forms,
    "finer in a class": finer,
    "topic": topics,
    "subject": subjects,
    "last word": last_words,
    "two words": two_words,
    "word before": words_before,
    "near miss": near_misses,
}
