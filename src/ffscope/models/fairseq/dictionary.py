"""dict.txt as a word-level tokenizer: what stands between white space is a word, and what is not in the file is `<unk>`."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from ffscope.errors import SourceError

SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
"""The first ids. They are never in the file."""
_OVERWRITE = "#fairseq:overwrite"
# Python's white space, which fairseq splits at: the separators 1C to 1F too, which a regular expression's \s has not.
_WHITE_SPACE = r"[\s\x1c-\x1f\x85]+"


def read_words(file: Path) -> list[str]:
    """The words by their ids, symbols first. A line holds a word and how often it was counted."""
    try:
        with file.open(encoding="utf-8") as stream:
            lines = list(stream)  # not `splitlines`, which ends a line at more than a line break
    except FileNotFoundError as error:
        raise SourceError(
            f"There is no {file.name} beside the checkpoint, in {file.parent}. Expected fairseq's dictionary there, a line "
            "`word count` for every word: copy it from where the model's data was prepared."
        ) from error
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8. Expected a line `word count` for every word.") from error
    words = list(SYMBOLS)
    known = set(words)
    for number, line in enumerate(lines, start=1):
        word = _word(file, number, line, known)
        known.add(word)
        words.append(word)
    return words


def _word(file: Path, number: int, line: str, known: set[str]) -> str:
    word, space, count = line.rstrip().rpartition(" ")
    again = count == _OVERWRITE
    if again:
        word, space, count = word.rpartition(" ")
    if not space or not _is_number(count):
        raise SourceError(
            f"Line {number} of {file} is {line[:60]!r}. Expected a word and its count, parted by a space."
        )
    if word in SYMBOLS:
        raise SourceError(f"Line {number} of {file} has {word!r}, which is a symbol of fairseq's own. Expected words.")
    if word in known and not again:
        raise SourceError(f"Line {number} of {file} has {word[:60]!r} a second time. Expected every word once.")
    return word


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def make_tokenizer(words: list[str], *, bos: str) -> Any:
    """The tokenizer of these words. Text is put behind `bos`, which is `</s>` in most models."""
    vocabulary = {word: number for number, word in enumerate(words)}  # of two alike the later one is found
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SYMBOLS[3]))
    tokenizer.pre_tokenizer = Split(Regex(_WHITE_SPACE), behavior="removed")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        pad_token=SYMBOLS[1],
        eos_token=SYMBOLS[2],
        unk_token=SYMBOLS[3],
        split_special_tokens=True,  # a symbol in the text is a word like others: `a<unk>b` is not three
        clean_up_tokenization_spaces=False,
    )
