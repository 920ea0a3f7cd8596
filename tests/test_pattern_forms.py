"""Surface forms: every form compared with its plain definition over real text, and every description with what it describes."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice

import numpy as np
import pyarrow.parquet as pq
import pytest
import simplemma

from ffscope.corpus.documents import Corpus
from ffscope.patterns.candidates import find_candidates
from ffscope.patterns.describe import describe
from ffscope.patterns.forms import CONTENT, SHALLOW, form_code
from ffscope.patterns.lemmas import lemmatize
from ffscope.patterns.prefixes import read_prefixes, sample_sentences
from ffscope.patterns.shallow import Shared
from ffscope.patterns.words import BEGINNINGS, ENDINGS, Lexicon
from planted import by_hand, make_tokenizer, prefixes_of
from word_prefixes import prefixes_from

# Words of the Latin script; the real pattern knows all scripts.
WORD = re.compile(r"\d+(?:[.,:]\d+)+|\w+(?:['’]\w+)*|([^\w\s])\1*")
BYTES = re.compile("(<[0-9A-F]{2}>)+")  # a token that is part of a character
EXTRA = (
    "About 1,200 men (and 35 women) left on 3 May 1812, or so it was “said”. The 21st of June was not.",
    "A NATO ship – the Andes – had 12.5 metres of rope; 7 men re-tied it, and 1234567 did not.",
    "He carried it and he carries it, and then he will carry it and carry it and carry it again and again.",
    "Earth's crust isn’t thick.  It is  thin!  Unbelievably thin, he said… J was not a NATO name.",
)
KINDS = {
    "a year": r"1\d{3}|20\d{2}",
    "a number": r"\d+(?:[.,:]\d+)*",
    "an ordinal number": r"(?i:\d*(?:1st|2nd|3rd|\dth))",
    "an opening quote": r"[“‘«„]",
    "a closing quote": r"[”’»]",
    "an opening bracket": r"[(\[{]",
    "a closing bracket": r"[)\]}]",
    "a mark that ends a sentence": r"[.!?…]+",
}


@dataclass
class Prefix:
    """A prefix in plain terms: its text, the words before the last, the last as far as it goes, and its tokens."""

    text: str
    spelt: list[str]
    last: str
    part: bool  # the last word is incomplete
    piece: int  # which token of the last word is the last token
    token: int

    @cached_property
    def words(self):
        return [word.casefold() for word in self.spelt]

    @property
    def whole(self):
        return [] if self.part or not self.last else [self.last]


def plain_prefixes(study):
    rows = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
    return [prefix for row in rows for prefix in _of_sentence(row["text"], row["ends"], row["tokens"])]


def _of_sentence(text, ends, tokens):
    matches = [(_quote(text, match), match.start(), match.end()) for match in WORD.finditer(text)]
    for position, end in enumerate(ends):
        begun = [match for match in matches if match[1] < end]
        if not begun:
            yield Prefix(text[:end], [], "", False, 0, tokens[position])
            continue
        word, start, stop = begun[-1]
        cut = word if end >= stop else text[start:end]
        # Several tokens may be bytes of one character, and end in the same place.
        inside = [
            i for i in range(position + 1) if ends[i] > start and max([0, *(e for e in ends if e < ends[i])]) < stop
        ]
        piece = len(inside) - 1 if inside and inside[-1] == position else 0
        words = [match[0] for match in begun[:-1]]
        yield Prefix(text[:end], words, cut, end < stop and text[end].isalnum(), piece, tokens[position])


def _quote(text, match):
    if match.group()[0] != '"':
        return match.group()
    before = text[match.start() - 1 : match.start()]
    return "“" if not before or before.isspace() or before in "([{—–" else "”"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    texts = [next(iter(document.paragraphs)) for document in islice(Corpus("vital-articles"), 0, 400, 8)]
    texts = [*(text[:600] for text in texts), *EXTRA]
    tokenizer = make_tokenizer(texts, size=900)
    return by_hand(tmp_path_factory.mktemp("forms") / "study", texts, [[]], tokenizer=tokenizer)


@pytest.fixture(scope="module")
def sample(study):
    table = pq.read_table(study.path("triggers.parquet"))
    return read_prefixes(study, table, sample_sentences(study, 0))[1]


@pytest.fixture(scope="module")
def plain(study, sample):
    prefixes = plain_prefixes(study)
    assert [prefix.text for prefix in prefixes] == [text for _, text in prefixes_of(study)]
    assert len(prefixes) == len(sample) > 3000
    return prefixes


def _letters(word):
    return len(word) if word.isalpha() else 0


@cache
def _lemma(word):
    return simplemma.lemmatize(word, lang="en").casefold() if word.isalpha() else word


def _affix(words, length, *, last):
    """The last or first letters of words that have two more."""
    words = [word.casefold().replace("’", "'") for word in words]
    words = [word for word in words if word.replace("'", "").isalpha() and len(word) >= length + 2]
    return {word[-length:] if last else word[:length] for word in words}


def _classes(words):
    return {name for name, shape in KINDS.items() for word in words if re.fullmatch(shape, word)} | {
        case for word in words for case in [_case(word)] if case
    }


def _case(word):
    if len(word) == 1 and word.isupper():
        return "a single capital letter"
    if word.isalpha() and word.isupper():
        return "a word in capitals"
    letters = re.sub("['’]", "", word[2:])
    capitalised = word[:1].isupper() and word[1:2].islower() and (letters.isalpha() or not letters)
    return "a capitalised word" if capitalised else None


def _digits(word):
    return len(re.findall(r"\d", word.partition(".")[0])) if re.fullmatch(KINDS["a number"], word) else 0


def _pieces(prefix):
    if not prefix.last.isalpha() or not (prefix.part or prefix.piece):
        return set()
    kinds = {"any", ("first", "second")[prefix.piece] if prefix.piece < 2 else "later"}
    if prefix.piece:
        kinds.add("inner" if prefix.part else "last")
    return kinds | {f"capitalised {kind}" for kind in kinds if prefix.last[0].isupper()}


def _positions(prefix):
    if not prefix.last:
        return set()
    place = len(prefix.words) + 1
    exact = {place} if place <= 10 else set()
    early, late = ({f"first {n}" for n in (2, 3, 5, 10) if place <= n}, {f"after {n}" for n in range(20, 51, 5)})
    return exact | early | {name for name in late - {"after 35", "after 45"} if place > int(name[6:])}


def _last_words(prefix, count):
    if not prefix.last or len(prefix.words) < count - 1:
        return set()
    return {(*prefix.words[len(prefix.words) - count + 1 :], prefix.last.casefold(), prefix.part)}


def _before(prefix, distance, count=1):
    words = prefix.words[: max(len(prefix.words) - distance + 1, 0)]
    return {tuple(words[-count:])} if len(words) >= count else set()


def _within(prefix, count):
    return {tuple(prefix.words[i : i + count]) for i in range(len(prefix.words) - count + 1)}


PLAIN = {
    **{
        f"last {name}": (lambda p, n=n: _last_words(p, n))
        for n, name in enumerate(("word", "two words", "three words"), 1)
    },
    "lemma": lambda p: {_lemma(word.casefold()) for word in p.whole},
    "token": lambda p: {p.token},
    "class": lambda p: _classes(p.whole) | ({"part"} if p.part else set()),
    "digits": lambda p: {
        *(n for word in p.whole for n in (1, 2, 3, 4) if _digits(word) == n),
        *(n for word in p.whole for n in (5, 7) if _digits(word) >= n),
    },
    "piece": _pieces,
    **{f"ending {n}": (lambda p, n=n: _affix(p.whole, n, last=True)) for n in (3, 2, 4, 1)},
    **{f"beginning {n}": (lambda p, n=n: _affix(p.whole, n, last=False)) for n in (3, 2, 1)},
    "length": lambda p: {
        *(n for word in p.whole for n in (12, 10, 8) if _letters(word) >= n),
        *(n for word in p.whole for n in (2, 3) if 0 < _letters(word) <= n),
    },
    "position": _positions,
    **{f"{n} before": (lambda p, n=n: _before(p, n)) for n in (1, 2, 3, 4)},
    **{f"pair {n} before": (lambda p, n=n: _before(p, n, 2)) for n in (1, 2)},
    "lemma before": lambda p: {_lemma(word) for word in p.words[-1:]},
    "class before": lambda p: _classes(p.spelt[-1:]),
    **{f"ending {n} before": (lambda p, n=n: _affix(p.words[-1:], n, last=True)) for n in (3, 2)},
    "skip-gram": lambda p: {(word, last.casefold()) for word in p.words[-7:-1] for last in p.whole},
    "first word": lambda p: set(p.words[:1]) if len(p.words) > 4 else set(),
    **{f"{name} within": (lambda p, n=n: _within(p, n)) for n, name in enumerate(("word", "two", "three"), 1)},
}


def test_every_form_has_a_plain_definition():
    assert PLAIN.keys() == {form.name for form in SHALLOW}


@pytest.mark.parametrize("form", SHALLOW, ids=lambda form: form.name)
def test_prefixes_share_a_code_if_they_share_the_property(form, sample, plain):
    expected, actual = defaultdict(set), defaultdict(set)
    for row, prefix in enumerate(plain):
        for value in PLAIN[form.name](prefix):
            expected[value].add(row)
    for row, code in zip(*form.codes(sample), strict=True):
        actual[int(code)].add(int(row))
    expected, actual = (Counter(map(frozenset, groups.values())) for groups in (expected, actual))
    assert sum(expected.values()) >= (2 if form.name == "digits" else 5)
    wrong = [
        [repr(plain[row].text[-60:]) for row in sorted(rows)[:4]] for rows in (expected - actual) + (actual - expected)
    ]
    assert not wrong


def test_content_words_are_counted_by_lemma(sample, plain):
    lexicon = sample.sentences.lexicon
    content = {word for word, is_content in zip(lexicon.folds, lexicon.content_folds, strict=True) if is_content}
    owner, code = CONTENT.codes(sample)
    codes = defaultdict(set)
    for row, value in zip(owner.tolist(), code.tolist(), strict=True):
        codes[row].add(value)
    for row, prefix in enumerate(plain):
        words = [*prefix.words, *(word.casefold() for word in prefix.whole)]
        assert len(codes[row]) == len({_lemma(word) for word in words if word in content})


# Descriptions


def is_true(description, prefix):
    """Whether a description is true of a prefix, by the text of both alone."""
    last, folded, quotes = (
        prefix.last,
        prefix.last.casefold(),
        re.findall("“(.+?)”(?=, “| or |, part| stands?|$)", description),
    )
    if match := re.fullmatch(r"ends with the (\w+) word of its sentence", description):
        return ORDINALS.index(match[1]) == len(prefix.words)
    if match := re.fullmatch(r"ends (within|after) the first (\d+) words of its sentence", description):
        return (len(prefix.words) + 1 <= int(match[2])) == (match[1] == "within")
    if match := re.fullmatch(r"ends with a word of at (least|most) (\d+) letters", description):
        return not prefix.part and (len(last) - int(match[2])) * (1 if match[1] == "least" else -1) >= 0
    if match := re.fullmatch(r"ends with a number of (at least )?(\d+) digits?", description):
        return _digits(last) == int(match[2]) or bool(match[1] and _digits(last) > int(match[2]))
    if match := re.fullmatch(r"ends with (?:an?|the) (?:(\w+) )?piece of a split (capitalised )?word", description):
        return bool({f"{'capitalised ' if match[2] else ''}{match[1] or 'any'}"} & _pieces(prefix))
    if match := re.fullmatch(
        r"(ends with )?a word (in|with) “-?(.+?)-?”(?: stands before the last word)?", description
    ):
        word = folded if match[1] else prefix.words[-1]
        return word.endswith(match[3]) if match[2] == "in" else word.startswith(match[3])
    if match := re.fullmatch(r"ends (with|after) (an? .+)", description):
        return match[2] in _classes(prefix.whole if match[1] == "with" else prefix.spelt[-1:])
    if description == "ends inside a word":
        return prefix.part
    return _is_quoted(description, prefix, quotes)


def _is_quoted(description, prefix, quotes):
    words = [*prefix.words, prefix.last.casefold()]
    if "or another form" in description:
        return _lemma(words[-2 if "stands" in description else -1]) == _lemma(quotes[0])
    if match := re.fullmatch(r"ends with “(.+) … (.+)”", description):
        return match[1] in words[-8:-2] and words[-1] == match[2]
    if description.startswith("ends with the token"):
        return f" {prefix.text}".endswith(quotes[0].replace("␣", " ").rstrip()) or bool(BYTES.fullmatch(quotes[0]))
    if description.endswith("part of a word"):
        return prefix.part and _ends(words, quotes[0])
    if description.startswith("ends with"):
        return not prefix.part and any(_ends(words, quote) for quote in quotes)
    if match := re.search(r"stands? (before the last word|(\w+) from the end)$", description):
        distance = ORDINALS.index(match[2]) if match[2] else 1
        return any(_ends(words[:-distance], quote) for quote in quotes)
    if description.startswith("its sentence begins with"):
        return words[0] == quotes[0]
    assert description.startswith("contains"), description
    return f" {quotes[0]} " in f" {' '.join(words[:-1])} "


def _ends(words, quote):
    return f" {' '.join(words)}".endswith(f" {quote}")


ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


def test_descriptions_are_true_of_every_prefix(study, sample, plain):
    """Those of all forms that three of 60 prefixes share: similar ones, and random ones."""
    tokens = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
    names = Counter()
    by_ending = sorted(range(len(plain)), key=lambda row: plain[row].last[::-1])
    by_text = sorted(range(len(plain)), key=lambda row: plain[row].words[::-1])
    at_random = np.random.default_rng(0).permutation(len(plain))
    rows = np.concatenate([order[-60 * 12 :] for order in (by_ending, by_text, at_random)])
    prefixes, memory, bit = sample.take(rows), np.arange(len(rows)) // 60, np.arange(len(rows)) % 60
    candidates = find_candidates(prefixes, memory, bit, SHALLOW, least=3)
    for number in range(len(candidates.memory)):
        form, bits = SHALLOW[candidates.form[number]], int(candidates.bits[number])
        members = [int(row) for row in np.flatnonzero(memory == candidates.memory[number]) if bits >> int(bit[row]) & 1]
        shared = Shared(
            form, int(candidates.code[number]), bits, 0.0, 0.0, int(candidates.example[number]), (form, 0), 0
        )
        description = describe(shared, prefixes, members, tokens)
        names[form.name] += 1
        for row in members:
            assert is_true(description, plain[rows[row]]), (form.name, description, plain[rows[row]])
    assert names.keys() == PLAIN.keys()


def test_forms_that_go_with_another_are_named_after_it():
    prefixes = prefixes_from(
        [["once", "in", "the", "old", "castle"]] * 4 + [["once", "in", "the", "new", "castle"]] * 2
    )
    forms = {form.name: form for form in SHALLOW}

    def shared(name, bits=0b111111, often=()):
        form = forms[name]
        owner, codes = form.codes(prefixes)
        code = int(form_code(form, codes)[owner.tolist().index(0)])
        return Shared(form, code, bits, 0.0, 0.0, 0, (form, code), bits, often)

    def described(name, *others):
        return describe(shared(name, often=others), prefixes, list(range(6)), [])

    some = 0b1111
    assert described("last word", shared("last two words", some)) == "ends with “castle”, often “old castle”"
    assert (
        described("1 before", shared("pair 1 before", some))
        == "“old” stands before the last word, often after “the old”"
    )
    assert (
        described("2 before", shared("pair 2 before", some))
        == "“the” stands third from the end, often “in the” third from the end"
    )
    assert described("last word", shared("skip-gram", some)).startswith("ends with “castle”, often “")
    assert described("ending 3", shared("1 before")) == "ends with a word in “-tle” after “old”"
    assert described("1 before", shared("ending 3")) == "ends with a word in “-tle” after “old”"
    assert (
        described("1 before", shared("ending 3", some)) == "“old” stands before the last word, often a word in “-tle”"
    )


def test_endings_are_compared_in_every_script():
    """Four Cyrillic letters are eight bytes."""
    words = ["красного", "синего", "дальнего", "красноге", "ἀνθρώπου", "ἀνθρώποι"]
    lexicon = Lexicon()
    lexicon.analyse("xx", np.bincount([lexicon.number(word) for word in words]))
    numbers = [lexicon.numbers[word] for word in words]
    for affixes, lengths, last in ((lexicon.endings, ENDINGS, True), (lexicon.beginnings, BEGINNINGS, False)):
        for column, length in enumerate(lengths):
            codes = affixes[numbers, column]
            for word, code in zip(words, codes, strict=True):
                same = [
                    other for other in words if _affix([other], length, last=last) == _affix([word], length, last=last)
                ]
                assert [other for other, value in zip(words, codes, strict=True) if value == code] == same


# Lemmas


def lemmas_of(words, language):
    lexicon = Lexicon()
    lexicon.analyse(language, np.bincount([lexicon.number(word) for word in words]))
    return [lexicon.lemmas[lexicon.lemma[lexicon.numbers[word]]] for word in words]


def test_lemmas():
    words = ["thing", "being", "evening", "Andes", "species", "carried", "Carries", "it's", "1990s", "men"]
    assert lemmas_of(words, "en") == [
        "thing",
        "be",
        "evening",
        "andes",
        "species",
        "carry",
        "carry",
        "it's",
        "1990s",
        "man",
    ]
    assert lemmas_of(["Häuser", "ging", "Kinder", "Kind", "schöner"], "de") == [
        "haus",
        "gehen",
        "kind",
        "kind",
        "schön",
    ]


def test_a_language_without_a_dictionary_has_no_lemmas():
    assert lemmatize(["carried", "Häuser", ""], "zh") == ["carried", "häuser", ""]
    assert lemmas_of(["carried", "Carries", "carry"], "xx") == ["carried", "carries", "carry"]
