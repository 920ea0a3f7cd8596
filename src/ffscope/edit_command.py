"""The command that writes an edit, ready to be pasted into a shell."""

import shlex
from collections.abc import Iterable, Mapping


def quoted(word: str) -> str:
    """A word for a POSIX shell; in bash and zsh also one with control or direction marks, which are not pasted as they are."""
    if word.isprintable():
        return shlex.quote(word)
    # Bytes in octal, which end after three digits whatever follows.
    encoded = word.encode(errors="surrogateescape")
    return "$'" + "".join(chr(byte) if _is_plain(byte) else f"\\{byte:03o}" for byte in encoded) + "'"


def edit_command(
    model: str,
    *,
    zero: Iterable[str] = (),
    scale: Mapping[str, float] | None = None,
    set: Mapping[str, float] | None = None,
    out: str = "edited",
) -> str:
    """`ffscope edit MODEL --zero L1.2 --scale L3.4=2 --out edited`."""
    pairs = {
        "--zero": list(zero),
        "--scale": [f"{name}={number_text(number)}" for name, number in (scale or {}).items()],
        "--set": [f"{name}={number_text(number)}" for name, number in (set or {}).items()],
    }
    words = ["ffscope", "edit", _not_an_option(model or "MODEL")]
    for option, terms in pairs.items():
        words += [option, ",".join(terms)] if terms else []
    return " ".join(quoted(word) for word in [*words, "--out", _not_an_option(out)])


def number_text(number: float) -> str:
    """A number as short as it can be read back exactly."""
    return repr(float(number)).removesuffix(".0")


def _not_an_option(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path


def _is_plain(byte: int) -> bool:
    return 32 <= byte < 127 and chr(byte) not in "\\'"
