"""The examples of a study: held-out prefixes, each with the model's prediction and the actual next token."""

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.corpus.prefixes import prefix_text
from ffscope.search.example_pass import Examples, Observer, View
from ffscope.study.folder import Study


class ExampleWriter(Observer):
    """Computes the rows of examples.parquet."""

    stage = "examples"

    def __init__(self, study: Study, examples: Examples, count: int) -> None:
        self.examples, self.settings = examples, {"examples": count}
        self._sentences = {row["sentence"]: row for row in _sentences(study, examples.sentence)}

    def rows(self, view: View) -> dict[str, Any]:
        numbers = view.examples
        sentences, positions = self.examples.sentence[numbers], self.examples.position[numbers]
        tokenizer = view.model.tokenizer
        targets_and_texts = [
            self._target_and_text(tokenizer, *place)
            for place in zip(sentences.tolist(), positions.tolist(), strict=True)
        ]
        return {
            "example": numbers.astype("int32"),
            "sentence": sentences.astype("int32"),
            "position": positions.astype("int32"),
            "prediction": [None] * len(numbers) if view.prediction is None else view.prediction.int().cpu().numpy(),
            "target": [target for target, _ in targets_and_texts],
            "text": [text for _, text in targets_and_texts],
        }

    def _target_and_text(self, tokenizer: Any, sentence: int, position: int) -> tuple[int, str]:
        """The token that follows a prefix, and the prefix's text."""
        row = self._sentences[sentence]
        tokens = row["tokens"]
        target = tokens[position + 1] if position + 1 < len(tokens) else row["next_token"]
        return target, prefix_text(row, position, tokenizer.decode)


def _sentences(study: Study, numbers: Array) -> list[dict[str, Any]]:
    columns = ["sentence", "text", "tokens", "ends", "next_token"]
    wanted = pc.field("sentence").isin(np.unique(numbers))
    return pq.read_table(study.path("sentences.parquet"), columns=columns, filters=wanted).to_pylist()
