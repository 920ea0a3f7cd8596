"""Reading a study in Python: its tables as pyarrow tables, its figures as charts. No torch.

study = ffscope.open("DIR")
study.triggers("L12.345")
study.figure("cases")
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.corpus.prefixes import prefix_text
from ffscope.errors import StudyError
from ffscope.memory_name import Memory, parse_name
from ffscope.queries.annotations import Annotation, read
from ffscope.queries.memory import MemoryPage, memory_page
from ffscope.queries.tables import checked
from ffscope.queries.values import PredictiveValue, predictive_values
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.tokens import visible


class Results:
    """The results of a study. Tables are pyarrow tables: use `.to_pandas()`, `.to_pylist()`, duckdb or polars."""

    def __init__(self, folder: Path | str) -> None:
        self.study = Study.open(folder)
        self.folder = self.study.folder
        self.manifest = self.study.manifest

    def table(self, name: str, memory: str | None = None) -> pa.Table:
        """One of the study's tables, or its rows for one memory ("L12.345") or layer ("L12")."""
        file = f"{name}.parquet"
        if file not in SCHEMAS:
            raise StudyError(f"There is no table {name!r}. The tables are: {', '.join(self._names(SCHEMAS))}.")
        if not self.study.path(file).is_file():
            raise StudyError(f"{self.folder} has no {name} yet. It has: {', '.join(self.tables)}.")
        filters = [] if memory is None else self._filters(name, memory)
        try:
            return pq.read_table(self.study.path(file), filters=filters or None)
        except pa.ArrowInvalid as error:
            raise StudyError(
                f"{self.study.path(file)} cannot be read as a table: {error}. Delete it and run its stage again."
            ) from error

    def _filters(self, table: str, memory: str) -> list[tuple[str, str, int]]:
        """The pyarrow filter for one memory or layer."""
        layer, number = parse_name(memory)
        checked(self.study, Memory(layer, number or 0))
        wanted = {"layer": layer} if number is None else {"layer": layer, "memory": number}
        if not wanted.keys() <= set(SCHEMAS[f"{table}.parquet"].names):
            raise StudyError(
                f"The table {table!r} cannot be filtered by {memory}: it has no such column. Read the whole table."
            )
        return [(column, "==", value) for column, value in wanted.items()]

    @property
    def tables(self) -> list[str]:
        """The names of the tables that exist."""
        return self._names(file for file in SCHEMAS if self.study.path(file).is_file())

    def triggers(self, memory: str | None = None) -> pa.Table:
        """The prefixes with the highest coefficients, with their text, for one memory, one layer or all."""
        return self._with_text(self.table("triggers", memory))

    def values(self, memory: str | None = None) -> pa.Table:
        """The tokens that values promote and suppress, as ids and as text."""
        table = self.table("values", memory)
        for name in ("top_tokens", "bottom_tokens"):
            spelt = [None if row is None else [self.token(token) for token in row] for row in table[name].to_pylist()]
            table = table.append_column(name.replace("tokens", "text"), pa.array(spelt, pa.list_(pa.string())))
        return table

    def agreement(self, memory: str | None = None) -> pa.Table:
        """Every value compared with its key's triggers."""
        return self.table("agreement", memory)

    def mutation(self, memory: str | None = None) -> pa.Table:
        """The coefficients of triggers with a token removed."""
        return self.table("mutation", memory)

    def patterns(self, memory: str | None = None) -> pa.Table:
        """The patterns found by ffscope and by language models; those of people are in `annotations`."""
        return self.table("patterns", memory)

    def effects(self, memory: str | None = None) -> pa.Table:
        """What the model would lose without each memory, as estimated; "exact_effects" and "effect_groups" are tables too."""
        return self.table("effects", memory)

    def types(self, memory: str | None = None) -> pa.Table:
        """The types of memories by published definitions."""
        return self.table("types", memory)

    def leaks(self) -> pa.Table:
        """Text that the model completes word for word, unmasked; "leak_memories" and "canaries" are tables too."""
        return self.table("leaks")

    def annotations(self) -> list[Annotation]:
        """The patterns that people wrote: the latest of each person for each memory."""
        return read(self.study)

    def examples(self) -> pa.Table:
        """The held-out prefixes that composition and refinement use."""
        return self.table("examples")

    def composition(self) -> pa.Table:
        """The number of active memories, and of those that predict what the layer predicts, by example and layer."""
        return self.table("composition")

    def refinement(self) -> pa.Table:
        """What the residual, the feed-forward layer and the output predict, by example and layer."""
        return self.table("refinement")

    def memory(self, name: str) -> MemoryPage:
        """Everything about one memory, as in `ffscope show`."""
        return memory_page(self.folder, name)

    def predictive_values(self, count: int = 100) -> list[PredictiveValue]:
        """The values with the highest maximum probability, each with a trigger."""
        return predictive_values(self.folder, count)

    def summary(self) -> dict[str, Any]:
        """The data of the figures, with intervals; computed if there is no report, or an outdated one."""
        file = self.study.path("summary.json")
        if list(self.manifest["stages"])[-1] == "report" and file.is_file():  # otherwise a stage was run since
            with suppress(ValueError):
                return json.loads(file.read_text(encoding="utf-8"))
        from ffscope.report.summary import summarise

        return summarise(self.study)

    def figure(self, name: str, annotators: list[str] | None = None) -> Any:
        """One figure ("cases", "patterns" …), displayed by notebooks; "patterns" can be limited to some annotators."""
        from ffscope.report.drawn_figure import draw

        return draw(name, self.summary(), annotators)

    def token(self, token: int) -> str:
        """A token as it is displayed."""
        if not hasattr(self, "_vocabulary"):
            self._vocabulary = self.table("vocabulary")["text"].to_pylist()
        return self._vocabulary[token] if 0 <= token < len(self._vocabulary) else f"#{token}"

    def _with_text(self, triggers: pa.Table) -> pa.Table:
        """Triggers with two more columns: the text of the prefix, and the next token."""
        wanted = pc.unique(triggers["sentence"])
        sentences = pq.read_table(
            self.study.path("sentences.parquet"),
            columns=["sentence", "text", "ends", "tokens"],
            filters=pc.field("sentence").isin(wanted),
        ).to_pylist()
        by_number = {row["sentence"]: row for row in sentences}
        places = zip(triggers["sentence"].to_pylist(), triggers["position"].to_pylist(), strict=True)
        texts = [prefix_text(by_number[sentence], position, self._spelt) for sentence, position in places]
        following = [self.token(token) for token in triggers["next_token"].to_pylist()]
        return triggers.append_column("prefix", pa.array(texts, pa.string())).append_column(
            "next", pa.array(following, pa.string())
        )

    def _spelt(self, tokens: Sequence[int]) -> str:
        return "".join(map(self.token, tokens))

    def _names(self, files: Any) -> list[str]:
        return [file.removesuffix(".parquet") for file in files]

    def __repr__(self) -> str:
        model = self.manifest["model"]
        name = visible(model["source"] or model["family"])
        return f"Results({str(self.folder)!r}: {name}, {sum(model['memories']):,} memories; {', '.join(self.tables)})"

    def _repr_html_(self) -> str:
        """For a notebook: what was studied, and its findings beside the paper's."""
        from ffscope.report.summary import findings

        heads = "".join(f"<th>{head}</th>" for head in ("finding", "this model", "the paper", "reading"))
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in vars(finding).values())}</tr>"
            for finding in findings(self.summary())
        )
        return f"<p>{escape(repr(self))}</p><table><tr>{heads}</tr>{rows}</table>"


def open(folder: Path | str) -> Results:
    """The results of a study: `study = ffscope.open("DIR")`."""
    return Results(folder)
