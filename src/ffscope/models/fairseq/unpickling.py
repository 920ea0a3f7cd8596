"""A checkpoint's pickle, opened without running anything that it names.

Tensors are made by torch's own unpickler of weights. Of all else that fairseq puts beside them (its arguments, omegaconf's trees,
meters) only the contents are kept: each such class becomes a `Record`, which does nothing. Any other name is refused.
"""

import pickle
import pickletools
import warnings
import zipfile
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import SourceError
from ffscope.tokens import visible

_RECORDED_MODULES = ("fairseq", "omegaconf")
_RECORDED = (
    "_codecs.encode",  # numbers that numpy wrote
    "argparse.Namespace",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    "numpy.dtype",
    "numpy.ndarray",
    "pathlib.PosixPath",
    "typing.Any",  # the types that omegaconf notes of its nodes
    *(
        f"builtins.{name}"
        for name in ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "str", "tuple")
    ),
)
_MADE: dict[str, Any] = {"collections.defaultdict": lambda *_given: {}, "collections.deque": lambda *_given: []}
"""Filled one by one when they are read, so a record will not do."""
_PLAIN = ("collections.OrderedDict", "collections.Counter", "builtins.set")  # torch makes them itself
_LAST_PROTOCOL = 3  # that torch's unpickler of weights reads
# A file of torch before 1.6 is several pickles; this number is the first of them.
_OLD_START = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
_ZIP_START = b"PK\x03\x04"
_LONGEST = 8 * 2**20  # bytes of a pickle; that of a large checkpoint, numbers apart, has some 100 thousand


class Record:
    """Stands for an object of a class that is not here: what it held, under its names."""

    def __new__(cls, *_given: Any, **_named: Any) -> "Record":
        return super().__new__(cls)

    def __init__(self, *given: Any, **named: Any) -> None:
        self.__dict__.update(named)
        self.given = given

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """What a checkpoint holds; one that is damaged, or names what it should not, is refused with a sentence."""
    try:
        with torch.serialization.safe_globals(_allowed(file)), warnings.catch_warnings(action="ignore"):
            found = torch.load(file, map_location="cpu", weights_only=True, mmap=_lies_open(file))
    except SourceError:
        raise
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{file} is a pickle of more than weights and arguments, so it is not opened ({_reason(error)}). "
            "Expected a checkpoint as fairseq writes it."
        ) from error
    # A file that is not whole breaks its readers in every way.
    except Exception as error:
        raise SourceError(
            f"{file} cannot be read ({_reason(error)}): it is damaged, cut short, or no checkpoint of fairseq's. Fetch it again."
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get("model"), dict):
        raise SourceError(
            f"{file} holds no model. Expected a checkpoint as fairseq writes it, with 'model' and 'args' or 'cfg'."
        )
    return found


def _allowed(file: Path) -> list[Any]:
    """What stands for each name in the pickle that torch does not know; torch has the last word on those that it does."""
    names = set(_names(file))
    records = {name for name in names if name in _RECORDED or name.split(".")[0] in _RECORDED_MODULES}
    known = {*records, *_MADE, *_PLAIN}
    unexpected = sorted(name for name in names - known if not name.startswith("torch."))
    if unexpected:
        raise SourceError(
            f"{file} is a pickle that names {', '.join(unexpected[:5])}, so it is not opened: a name in a pickle can run code. "
            "Expected weights and the arguments of fairseq, and nothing else."
        )
    return [*((Record, name) for name in records), *((made, name) for name, made in _MADE.items())]


def _names(file: Path) -> Iterator[str]:
    """The `module.name` of everything that a checkpoint's pickles refer to."""
    with file.open("rb") as stream:
        start = stream.read(len(_OLD_START))
        stream.seek(0)
        if start == _OLD_START:
            for _ in range(4):  # the number, the format's version, the machine, and what was saved
                yield from _names_of(stream, file)
            return
    if not start.startswith(_ZIP_START):
        raise SourceError(f"{file} is no checkpoint: expected a file as torch.save writes it. Fetch it again.")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.filename.endswith("data.pkl"):
                if member.file_size > _LONGEST:
                    raise SourceError(_too_long(file))
                with archive.open(member) as stream:
                    yield from _names_of(stream, file)


def _names_of(stream: Any, file: Path) -> Iterator[str]:
    """The names of one pickle, as torch reads them: Python 2's as today's. Other ways to name something it does not read."""
    for code, argument, place in pickletools.genops(stream):
        if place is not None and place > _LONGEST:
            raise SourceError(_too_long(file))
        if code.name == "PROTO" and int(argument or 0) > _LAST_PROTOCOL:
            raise SourceError(
                f"{file} is pickled by protocol {argument}. Expected 2, which torch.save takes by itself."
            )
        if code.name == "GLOBAL":
            module, name = str(argument).split(" ", 1)
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
            yield f"{module}.{name}"


def _too_long(file: Path) -> str:
    return f"{file} holds more than {_LONGEST // 2**20} MiB beside its numbers. Expected weights and a few arguments."


def _lies_open(file: Path) -> bool:
    """Whether the file's numbers can be read where they lie: it is an archive, and nothing in it is packed.

    An archive has checksums, which torch does not look at; they are looked at here. The old format has none.
    """
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise SourceError(f"{file} is damaged: {visible(damaged)} in it is not what was written. Fetch it again.")
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def _reason(error: Exception) -> str:
    """The line that tells what is wrong; torch puts advice before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    told = next((line for line in lines if line.startswith("WeightsUnpickler error")), lines[0])
    return visible(told.removeprefix("WeightsUnpickler error: ").split(". ")[0].rstrip("."), longest=200)
