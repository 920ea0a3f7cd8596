"""How the last layer changes the residual's predictions."""

from dataclasses import dataclass

from ffscope.queries.tables import Where, reading, spellings


@dataclass(frozen=True)
class LastLayerChange:
    """A composition case of the last layer: the residual's prediction and the output's."""

    text: str
    before: str
    after: str
    similarity: float
    related: bool


def last_layer_changes(where: Where) -> list[LastLayerChange]:
    """The sampled composition cases of the last layer, with their text and predicted tokens."""
    with reading(where) as tables:
        rows = tables.rows(
            "SELECT text, residual_top, output_top, similarity, related "
            "FROM last_layer JOIN examples USING (example) ORDER BY example"
        )
        spelt = spellings(tables, [token for row in rows for token in row[1:3]])
    return [
        LastLayerChange(text, spelt.get(before, f"#{before}"), spelt.get(after, f"#{after}"), similarity, related)
        for text, before, after, similarity, related in rows
    ]
