"""What the model loses without a memory: estimates, exact effects, and the examples where it helped and hurt most."""

from typing import Any

from ffscope.axes import Array
from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables, Where, reading, spellings

_ROWS = (
    ("estimated change of the loss (nats)", "effect", "effect_low", "effect_high"),
    ("mean size of that change, up or down", "effect_size", None, None),
    ("its direct part, past later layers", "direct", None, None),
    ("estimated change of the prediction’s log-probability", "effect_on_prediction", None, None),
)


def effect_panel(where: Where, memory: Memory) -> dict[str, Any] | None:
    """The effect of a memory as the table of a panel, with the examples where it is largest under `more`."""
    with reading(where) as tables:
        row = tables.row("SELECT * FROM effects WHERE layer = ? AND memory = ?", memory)
        if row is None:
            return None
        exact = tables.row("SELECT * FROM exact_effects WHERE layer = ? AND memory = ?", memory)
        places = [
            (f"{side}", example, change if side == "helped" else -change)
            for side in ("helped", "hurt")
            for example, change in zip(row[f"{side}_examples"], row[f"{side}_changes"], strict=True)
        ]
        masked = tables.study.manifest["stages"]["effects"].get("masked", False)
        texts = _texts(tables, [example for _, example, _ in places], masked=masked)
    heads = ("Masked token", "Text up to it") if masked else ("Next token", "After")
    lines = [[name, *(row[column] if column else None for column in columns)] for name, *columns in _ROWS]
    if exact is not None:
        lines.insert(
            1,
            ["measured change of the loss (nats)", *(exact[name] for name in ("effect", "effect_low", "effect_high"))],
        )
    panel: dict[str, Any] = {
        "heads": ["Without the memory", "Mean", "95 % from", "to"],
        "kinds": ["text", "real", "real", "real"],
        "rows": lines,
    }
    if places:
        panel["more"] = {
            "title": "The examples where it helped and hurt most",
            "heads": ["The memory", "Change of the loss", *heads],
            "kinds": ["text", "real", "token", "text"],
            "rows": [[side, change, *texts[example]] for side, example, change in places],
        }
    return panel


def _texts(tables: Tables, examples: list[int], *, masked: bool) -> dict[int, tuple[str, str]]:
    """The token to predict and the text of each example."""
    target = "tokens[position + 1]" if masked else "target"
    rows = tables.rows(
        f"SELECT example, {target}, right(examples.text, 300) FROM examples JOIN sentences USING (sentence) "
        "WHERE example IN (SELECT unnest(?::INT[]))",
        [examples],
    )
    spelt = spellings(tables, [target for _, target, _ in rows])
    return {example: (spelt.get(target, ""), text) for example, target, text in rows}


def scored_memories(tables: Tables) -> dict[str, Array]:
    """The memories whose effects were measured: the size of the exact effect, and what might have told it."""
    values = ("v.norm", "LEFT JOIN values v USING (layer, memory)") if tables.has("values") else ("NULL", "")
    return tables.arrays(
        f"""
        SELECT layer, memory, x.selected, x.effect_size AS exact_size, e.effect_size, e.contribution, e.loss_gradient,
            m.fired / greatest(m.seen, 1) AS fires, {values[0]}::DOUBLE AS norm
        FROM exact_effects x JOIN effects e USING (layer, memory) LEFT JOIN memories m USING (layer, memory) {values[1]}
        ORDER BY layer, memory
        """
    )


def described_memories(tables: Tables) -> dict[str, Array]:
    """For every memory that fires: the size of its effect, also relative to the mean of its layer, and whether it has a pattern and
    agrees with its top trigger; missing (NaN) if the study does not have that stage."""
    pattern = agrees = "NULL"
    joins = ""
    if tables.has("patterns"):
        pattern, joins = "(labelled.patterns IS NOT NULL)", "LEFT JOIN labelled USING (layer, memory)"
    if tables.has("agreement"):
        agrees, joins = "a.agrees", f"{joins} LEFT JOIN agreement a USING (layer, memory)"
    return tables.arrays(
        f"""
        SELECT layer, memory, effect_size, effect_size / nullif(avg(effect_size) OVER (PARTITION BY layer), 0) AS relative,
            {pattern}::INT::DOUBLE AS pattern, {agrees}::INT::DOUBLE AS agrees
        FROM effects JOIN memories USING (layer, memory) {joins} WHERE maximum > 0 ORDER BY layer, memory
        """
    )
