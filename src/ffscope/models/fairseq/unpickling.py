"""Open a checkpoint's pickle without running any code that it names.

Tensors are loaded by torch's weights-only unpickler. Of the other objects that fairseq saves (its arguments, omegaconf trees,
meters) only the contents are kept: each such class becomes a `Record`, which runs no code. Any other name is refused.
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
    "_codecs.encode",  # in numbers that numpy pickled
    "argparse.Namespace",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")),
    "numpy.dtype",
    "numpy.ndarray",
    "pathlib.PosixPath",
    "typing.Any",  # the types that omegaconf stores with its nodes
    *(
        f"builtins.{name}"
        for name in ("bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "str", "tuple")
    ),
)
_CONTAINERS: dict[str, Any] = {"collections.defaultdict": lambda *_args: {}, "collections.deque": lambda *_args: []}
"""Filled item by item when unpickled, so a Record cannot replace them."""
_PLAIN = ("collections.OrderedDict", "collections.Counter", "builtins.set")  # torch allows them itself
_LAST_PROTOCOL = 3  # that torch's weights-only unpickler reads
# A file written by torch before 1.6 is several pickles; the first of them is this number.
_OLD_START = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
_ZIP_START = b"PK\x03\x04"
_MAX_BYTES = 8 * 2**20  # of a pickle; that of a large checkpoint has about 100 thousand, without the tensors


class Record:
    """Replaces an object of a class that is not available; its attributes are those of the object."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> "Record":
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.update(kwargs)
        self.arguments = args

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)


def load_checkpoint(file: Path) -> dict[str, Any]:
    """The contents of a checkpoint; raises SourceError if it is damaged or names anything unexpected."""
    try:
        with torch.serialization.safe_globals(_allowed(file)), warnings.catch_warnings(action="ignore"):
            checkpoint = torch.load(file, map_location="cpu", weights_only=True, mmap=_can_mmap(file))
    except SourceError:
        raise
    except pickle.UnpicklingError as error:
        raise SourceError(
            f"{file} is a pickle of more than weights and arguments, so it is not opened ({_reason(error)}). "
            "Expected a checkpoint written by fairseq."
        ) from error
    # A damaged file can raise any error.
    except Exception as error:
        raise SourceError(
            f"{file} cannot be read ({_reason(error)}): it is damaged, truncated or not a fairseq checkpoint. Download it again."
        ) from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
        raise SourceError(
            f"{file} contains no model. Expected a checkpoint written by fairseq, with 'model' and 'args' or 'cfg'."
        )
    return checkpoint


def _allowed(file: Path) -> list[Any]:
    """The replacement for each name in the pickle that torch does not know; torch itself decides about the names it knows."""
    names = set(_names(file))
    records = {name for name in names if name in _RECORDED or name.split(".")[0] in _RECORDED_MODULES}
    expected = {*records, *_CONTAINERS, *_PLAIN}
    unexpected = sorted(name for name in names - expected if not name.startswith("torch."))
    if unexpected:
        raise SourceError(
            f"{file} is a pickle that names {', '.join(unexpected[:5])}, so it is not opened: a name in a pickle can run code. "
            "Expected only weights and fairseq's arguments."
        )
    return [*((Record, name) for name in records), *((make, name) for name, make in _CONTAINERS.items())]


def _names(file: Path) -> Iterator[str]:
    """The `module.name` of everything that the pickles of a checkpoint refer to."""
    with file.open("rb") as stream:
        start = stream.read(len(_OLD_START))
        stream.seek(0)
        if start == _OLD_START:
            for _ in range(4):  # the number, the format's version, the machine, and the saved object
                yield from _names_of(stream, file)
            return
    if not start.startswith(_ZIP_START):
        raise SourceError(f"{file} is not a checkpoint: expected a file written by torch.save. Download it again.")
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if member.filename.endswith("data.pkl"):
                if member.file_size > _MAX_BYTES:
                    raise SourceError(_too_large_message(file))
                with archive.open(member) as stream:
                    yield from _names_of(stream, file)


def _names_of(stream: Any, file: Path) -> Iterator[str]:
    """The names in one pickle as torch reads them, with Python 2 names mapped to Python 3. torch reads no other kind of name."""
    for code, argument, place in pickletools.genops(stream):
        if place is not None and place > _MAX_BYTES:
            raise SourceError(_too_large_message(file))
        if code.name == "PROTO" and int(argument or 0) > _LAST_PROTOCOL:
            raise SourceError(
                f"{file} is pickled with protocol {argument}. Expected protocol 2, torch.save's default: save it again."
            )
        if code.name == "GLOBAL":
            module, name = str(argument).split(" ", 1)
            module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
            yield f"{module}.{name}"


def _too_large_message(file: Path) -> str:
    return f"{file} contains more than {_MAX_BYTES // 2**20} MiB besides its tensors. Expected only weights and a few arguments."


def _can_mmap(file: Path) -> bool:
    """Whether the file can be memory-mapped: it is a zip archive without compression.

    The checksums of the archive, which torch ignores, are checked here. The old format has none.
    """
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise SourceError(
                f"{file} is damaged: the checksum of {visible(damaged)} in it is wrong. Download it again."
            )
        return all(member.compress_type == zipfile.ZIP_STORED for member in archive.infolist())


def _reason(error: Exception) -> str:
    """The line of a message that says what is wrong; torch puts advice before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    reason = next((line for line in lines if line.startswith("WeightsUnpickler error")), lines[0])
    return visible(reason.removeprefix("WeightsUnpickler error: ").split(". ")[0].rstrip("."), longest=200)
