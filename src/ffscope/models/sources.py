"""Read a model and its tokenizer from a hub name, a folder, a GGUF file, a fairseq checkpoint or a bundled default."""

import difflib
import logging
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
import transformers
from huggingface_hub.constants import ENDPOINT, HF_HUB_OFFLINE
from safetensors import SafetensorError
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.utils import cached_file

from ffscope.bundled import MODEL, install_hint
from ffscope.errors import SourceError, first_line
from ffscope.models.fairseq.checkpoint import find_checkpoint, read_checkpoint, read_tokenizer
from ffscope.models.gguf_cache import read_gguf
from ffscope.models.model_types import config_of_type, missing_type_message, reading_as
from ffscope.models.placement import DeviceMap, check_device_map
from ffscope.models.saving import refuse_overwriting, save_model
from ffscope.panics import Unreadable, guarded

logger = logging.getLogger(__name__)

BUNDLED = {"smollm2-135m": MODEL}
"""Default models, each with the package that contains its GGUF file."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spm.model",
    "vocab.json",
    "vocab.txt",
    "tokenizer_config.json",  # the only file of a byte tokenizer
)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


def read_source(
    source: str,
    *,
    device: str,
    dtype: str | torch.dtype,
    trust_remote_code: bool = False,
    model_type: str | None = None,
    device_map: DeviceMap = None,
) -> tuple[Any, Any]:
    """The model, on its device, and its tokenizer (None if it has none)."""
    check_device_map(device_map, device)
    torch_device = pick_device(device)
    torch_dtype = pick_dtype(dtype, torch_device)
    with _short_errors(source):
        model, load_tokenizer = _read(source, torch_dtype, trust_remote_code, model_type, device_map)
        return model if device_map else model.to(torch_device), load_tokenizer()


def read_model(
    source: str,
    *,
    device: str,
    dtype: str | torch.dtype,
    trust_remote_code: bool = False,
    model_type: str | None = None,
    device_map: DeviceMap = None,
) -> Any:
    """The model without its tokenizer, on its device."""
    check_device_map(device_map, device)
    torch_device = pick_device(device)
    torch_dtype = pick_dtype(dtype, torch_device)
    with _short_errors(source):
        model = _read(source, torch_dtype, trust_remote_code, model_type, device_map)[0]
        return model if device_map else model.to(torch_device)


def convert(source: str, folder: Path, *, trust_remote_code: bool = False, model_type: str | None = None) -> Any:
    """Write a model from any source as a folder of safetensors, in its own precision, and return the model."""
    with _writable(folder):
        refuse_overwriting(folder)
    with _short_errors(source):
        model, load_tokenizer = _read(source, "auto", trust_remote_code, model_type)
        tokenizer = load_tokenizer()
    with _writable(folder):
        save_model(model, tokenizer, folder)
    return model


@contextmanager
def _writable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(f"The model cannot be written to {folder}: {error.strerror or error}.") from error


def _read(
    source: str,
    dtype: torch.dtype | str,
    trust_remote_code: bool,
    model_type: str | None,
    device_map: DeviceMap = None,
) -> tuple[Any, Callable[[], Any]]:
    """The model, and a function that loads its tokenizer, which not every caller needs."""
    checkpoint = find_checkpoint(source)
    folder, arguments = ("", {}) if checkpoint else _pretrained_arguments(source, trust_remote_code)
    if model_type is not None and (checkpoint or "gguf_file" in arguments):
        raise SourceError(
            f"--model-type is for a config.json without model_type; {source} has no config.json. Leave it out."
        )
    if device_map and (checkpoint or "gguf_file" in arguments):
        raise SourceError(
            f"A device map needs a folder of safetensors. Write {source} as one first: ffscope convert {source} --out FOLDER"
        )
    if checkpoint:
        model = read_checkpoint(checkpoint, dtype)
        return model, partial(read_tokenizer, checkpoint, model)
    if "gguf_file" in arguments:
        file = Path(folder) / arguments["gguf_file"]
        return read_gguf(file, dtype, read_model=_model, read_tokenizer=_tokenizer)
    if model_type is not None:
        arguments["config"] = config_of_type(folder, model_type, arguments)
    placed = {"device_map": device_map} if device_map else {}
    with reading_as(model_type, folder):
        return _model(folder, dtype, arguments, placed), partial(_tokenizer, folder, arguments)


def _pretrained_arguments(source: str, trust_remote_code: bool) -> tuple[str, dict[str, Any]]:
    """The folder or hub name of a source, and the arguments for every `from_pretrained` of it."""
    folder, gguf = locate(source)
    arguments: dict[str, Any] = {"trust_remote_code": trust_remote_code, **({"gguf_file": gguf} if gguf else {})}
    if not Path(folder).is_dir():
        arguments["local_files_only"] = not _hub_reachable()
    return folder, arguments


@contextmanager
def _short_errors(source: str) -> Iterator[None]:
    """Turn any error from reading a file into a SourceError of one sentence."""
    try:
        with guarded():
            yield
    except Unreadable as unreadable:
        raise SourceError(_reason(source, unreadable.error)) from unreadable.error
    except MemoryError as error:  # from a model that is too large, or a damaged file that claims to be
        raise SourceError(_reason(source, error)) from error


def locate(source: str) -> tuple[str, str | None]:
    """Where transformers finds a source: a folder or hub name, and for a GGUF file its name in the folder."""
    if not source.strip():
        raise SourceError(
            f"Expected a model, found none. Name a folder, a .gguf file, a hub name or a bundled default ({', '.join(BUNDLED)})."
        )
    if source in BUNDLED:
        return _gguf(bundled(source))
    path = Path(source).expanduser()
    if path.is_dir():
        if (path / "adapter_config.json").is_file():
            raise SourceError(
                f"{source} contains an adapter, not a model. Merge it into its base model first (peft's `merge_and_unload`, "
                "then `save_pretrained`), and name that folder."
            )
        if not (path / "config.json").is_file():
            raise SourceError(
                f"{source} is not a model: expected a config.json in that folder, found {_listing(path)}. "
                "Name a folder written by `save_pretrained`, one with fairseq's model.pt and dict.txt, a .gguf file, a hub name "
                "or a bundled default."
            )
        return str(path), None
    if path.is_file():
        return _gguf(path)
    if path.suffix in (".gguf", ".pt") or source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise SourceError(f"There is no file or folder {source}. Check the path.{_did_you_mean(path)}")
    return source, None


def bundled(name: str) -> Path:
    """The GGUF file of a bundled default."""
    folder = BUNDLED[name].folder
    if folder is None:
        raise SourceError(f"The default model {name!r} is not installed. {install_hint()}")
    return next(folder.glob("*.gguf"))


def pick_device(device: str) -> torch.device:
    """The device of that name; `auto` is the first GPU if there is one."""
    if device == "meta":
        raise SourceError("Device 'meta' stores no numbers. Choose cpu, or auto for the best device available.")
    if device == "auto":
        return torch.device(
            "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        )
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise SourceError(
            f"Device {device!r} cannot be used on this machine. Choose cpu, or auto for the best device available."
        ) from error
    return chosen


def pick_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype | str:
    """The dtype of that name; `auto` is float32 on a CPU, where half precision is slow, and elsewhere the checkpoint's dtype."""
    dtype = str(dtype).removeprefix("torch.")
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    if device.type == "cpu" and dtype in ("bfloat16", "float16"):
        _make_low_precision_safe(dtype)
    if dtype not in _DTYPES:
        raise SourceError(f"There is no dtype {dtype!r}. Choose one of: auto, {', '.join(_DTYPES)}.")
    return _DTYPES[dtype]


def _make_low_precision_safe(dtype: str) -> None:
    """Some virtual machines report matrix instructions that crash a process: try them in a child, and disable them if it dies."""
    trial = (
        f"import torch; from torch.nn.functional import conv2d, linear; x = torch.ones(64, 256, dtype=torch.{dtype}); "
        "linear(x, x.repeat(4, 1)); conv2d(x.reshape(1, 16, 32, 32), x[:16].reshape(16, 16, 4, 4))"
    )
    if subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode < 0:
        logger.warning("This CPU's %s matrix products crash; running without oneDNN, which is slower.", dtype)
        torch._C._set_mkldnn_enabled(False)


def _model(
    folder: str, dtype: torch.dtype | str, arguments: dict[str, Any], placed: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    if "gguf_file" not in arguments and "config" not in arguments:
        _refuse_unknown(folder, arguments)
    config = arguments.get("config") or AutoConfig.from_pretrained(folder, **arguments)
    if getattr(config, "quantization_config", None) and "gguf_file" not in arguments:
        raise SourceError(
            f"The weights in {folder} are quantized, so keys and values cannot be read from them. Expected plain weights: "
            "load the model unquantized, or as GGUF, which is dequantized when read."
        )
    for cls in _classes(config, arguments):
        model, report = cls.from_pretrained(
            folder, dtype=dtype, weights_only=True, output_loading_info=True, **arguments, **placed
        )
        missing, unused = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
        if not missing:
            break
    else:
        raise SourceError(
            f"The weights in {folder} are incomplete: {len(missing)} are missing, such as {', '.join(missing[:3])}, and would be "
            "random. Download the checkpoint again, or correct `architectures` in its config.json."
        )
    if unused:
        logger.info("The model does not use %d weights of the checkpoint: %s …", len(unused), ", ".join(unused[:3]))
    return model


def _refuse_unknown(folder: str, arguments: dict[str, Any]) -> None:
    """Raise a short error if transformers lacks the code for this model, before its own long one."""
    config, _ = PretrainedConfig.get_config_dict(folder, local_files_only=arguments.get("local_files_only", False))
    name = config.get("model_type")
    if "auto_map" in config and name not in CONFIG_MAPPING and not arguments["trust_remote_code"]:
        raise SourceError(
            f"{folder} contains its own code, which is not run without permission. "
            "If you trust its author, pass --trust-remote-code (in Python: trust_remote_code=True)."
        )
    if name is None and "auto_map" not in config:
        raise SourceError(missing_type_message(folder, config))
    if name not in CONFIG_MAPPING and not arguments["trust_remote_code"]:
        close = difflib.get_close_matches(str(name), CONFIG_MAPPING, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise SourceError(
            f"config.json in {folder} gives model_type {name!r}, which transformers {transformers.__version__} does not know."
            f"{hint} Correct config.json, or install a newer transformers."
        )


def _classes(config: Any, arguments: dict[str, Any]) -> list[Any]:
    """The class that the checkpoint was saved as, so that its head is loaded and not randomly initialised; else likely classes."""
    named = getattr(transformers, (config.architectures or [""])[0], None)
    if isinstance(named, type) and issubclass(named, PreTrainedModel):
        return [named]
    if "gguf_file" in arguments or config.architectures:
        return [AutoModelForCausalLM]
    likely = [AutoModelForCausalLM] if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else []
    return [*likely, AutoModel]


def _tokenizer(folder: str, arguments: dict[str, Any]) -> Any:
    offline = arguments.get("local_files_only", False)
    if "gguf_file" not in arguments and not any(_exists(folder, name, offline) for name in _TOKENIZER_FILES):
        return None
    return AutoTokenizer.from_pretrained(folder, **arguments)


def _exists(folder: str, name: str, offline: bool) -> bool:
    file = cached_file(
        folder,
        name,
        local_files_only=offline,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return file is not None


def _hub_reachable() -> bool:
    """Whether the hub can be reached: without a network its client tries for half a minute before it uses its cache."""
    if HF_HUB_OFFLINE:
        return False
    try:
        socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None)
    except OSError:
        return bool(getproxies())  # a proxy resolves names for us
    return True


def _gguf(path: Path) -> tuple[str, str]:
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise SourceError(
                f"{path} is not a GGUF file: expected its first bytes to be 'GGUF'. "
                "Name a .gguf file, a fairseq checkpoint (.pt), a model's folder, a hub name or a bundled default."
            )
    return str(path.parent), path.name


def _reason(source: str, error: BaseException) -> str:
    """An error of transformers in one sentence."""
    first = first_line(error)
    name = source if len(source) <= 100 else f"{source[:100]}…"
    if isinstance(error, PermissionError):
        return f"{name} cannot be read: {error.strerror}. Expected a file or folder that you may read."
    if source.endswith(".gguf"):
        return (
            f"The GGUF file {name} cannot be read ({first}): it is damaged, truncated, or of an architecture that "
            "transformers does not read. Download it again, or name the unquantized model."
        )
    if isinstance(error, SafetensorError):
        return f"The weights of {name} cannot be read ({first}): the file is damaged or truncated. Download it again."
    if isinstance(error, pickle.UnpicklingError):
        return f"The weights of {name} are a pickle of more than tensors, so they are not opened. Convert them to safetensors."
    if source in BUNDLED or Path(source[:100]).is_dir():
        return f"{name} cannot be loaded: {first}. Expected a complete folder written by `save_pretrained`."
    return (
        f"{name!r} is not a local file or folder, nor a bundled default ({', '.join(BUNDLED)}), and the model hub "
        f"did not provide it: {first}. Check the name and the network, or name a folder.{_did_you_mean(Path(source[:100]))}"
    )


def _listing(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    return (", ".join(names[:5]) + (" …" if len(names) > 5 else "")) or "nothing"


def _did_you_mean(path: Path) -> str:
    siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, [*BUNDLED, *siblings], n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
