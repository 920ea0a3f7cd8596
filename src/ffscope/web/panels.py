"""The panels that stages declare for the memory page and the layer page, filled from a study's tables."""

import json
import logging
from dataclasses import dataclass
from typing import Any

from ffscope.html import dump_json
from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables
from ffscope.stages.registry import stages
from ffscope.stages.stage import Panel, Stage, resolve
from ffscope.tokens import visible

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FilledPanel:
    """A panel of a page: its stage, title, kind (how it is drawn), explanation and data."""

    stage: str
    title: str
    kind: str
    help: str
    data: Any


def memory_panels(tables: Tables, memory: Memory) -> list[FilledPanel]:
    """The panels of the finished stages for a memory."""
    rows = [row for row in stages().values() if tables.study.has(row.name)]
    filled = [_filled(row, panel, tables, memory) for row in rows for panel in row.memory_panels]
    return [panel for panel in filled if panel is not None]


def layer_panels(tables: Tables, layer: int) -> list[FilledPanel]:
    """The panels of the finished stages for a layer."""
    rows = [row for row in stages().values() if tables.study.has(row.name)]
    filled = [_filled(row, panel, tables, layer) for row in rows for panel in row.layer_panels]
    return [panel for panel in filled if panel is not None]


def _filled(row: Stage, panel: Panel, tables: Tables, place: Memory | int) -> FilledPanel | None:
    """A panel with its data; None if it has none. An error affects only this panel."""
    kind = panel.kind
    try:
        data = resolve(panel.data)(tables, place)
        data = json.loads(dump_json(data))  # invalid JSON fails here, not with the whole page
    except Exception as error:  # a plugin's code may raise anything
        reason = visible(f"{type(error).__name__}: {error}", longest=300)
        logger.warning("The panel %r of the stage %s could not be computed: %s", panel.title, row.name, reason)
        kind, data = "text", "This panel could not be computed. The reason is in the terminal where ffscope runs."
    return None if data is None else FilledPanel(row.name, panel.title, kind, panel.help, data)
