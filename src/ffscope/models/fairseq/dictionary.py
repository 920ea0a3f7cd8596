"""dict.txt as a word-level tokenizer: text is split at white space, and words that are not in the file are `<unk>`."""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from ffscope.errors import SourceError

SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
"""The tokens with the first ids, which are not in the file."""
_OVERWRITE = "#fairseq:overwrite"
# fairseq splits at Python's white space, which includes the separators 1C to 1F; \s in a regular expression does not.
_WHITE_SPACE = r"[\s\x1c-\x1f\x85]+"


def read_words(file: Path) -> list[str]:
    """The words in the order of their ids, symbols first. Each line of the file is a word and its count."""
    try:
        with file.open(encoding="utf-8") as stream:
            lines = list(stream)  # not `splitlines`, which also splits at other characters than line breaks
    except FileNotFoundError as error:
        raise SourceError(
            f"There is no {file.name} next to the checkpoint, in {file.parent}. Expected fairseq's dictionary there, with one line "
            "`word count` per word: copy it from the folder where the model's data was prepared."
        ) from error
    except OSError as error:
        raise SourceError(f"{file} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"{file} is not UTF-8. Expected one line `word count` per word.") from error
    words = list(SYMBOLS)
    earlier = set(words)
    for number, line in enumerate(lines, start=1):
        word = _parse_line(file, number, line, earlier)
        earlier.add(word)
        words.append(word)
    return words


def _parse_line(file: Path, number: int, line: str, earlier: set[str]) -> str:
    word, space, count = line.rstrip().rpartition(" ")
    overwrite = count == _OVERWRITE
    if overwrite:
        word, space, count = word.rpartition(" ")
    if not space or not _is_number(count):
        raise SourceError(
            f"Line {number} of {file} is {line[:60]!r}. Expected a word and its count, separated by a space."
        )
    if word in SYMBOLS:
        raise SourceError(
            f"Line {number} of {file} has {word!r}, which is one of fairseq's symbols. Expected only words."
        )
    if word in earlier and not overwrite:
        raise SourceError(f"Line {number} of {file} repeats {word[:60]!r}. Expected every word once.")
    return word


def _is_number(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def make_tokenizer(words: list[str], *, bos: str) -> Any:
    """The tokenizer of these words. Text is preceded by `bos`, which is `</s>` in most models."""
    vocabulary = {word: number for number, word in enumerate(words)}  # a repeated word gets its last id
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=SYMBOLS[3]))
    tokenizer.pre_tokenizer = Split(Regex(_WHITE_SPACE), behavior="removed")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        pad_token=SYMBOLS[1],
        eos_token=SYMBOLS[2],
        unk_token=SYMBOLS[3],
        split_special_tokens=True,  # a symbol in the text is an ordinary word: `a<unk>b` is one word, not three
        clean_up_tokenization_spaces=False,
    )
