"""The search page of an export, where no server can be asked."""

from dataclasses import dataclass

from ffscope.queries.search_index import SearchIndex, search_index
from ffscope.queries.tables import Tables
from ffscope.web.twins.missing import Missing, missing


@dataclass(frozen=True)
class SearchIndexTwin:
    """All that the page searches."""

    index: SearchIndex
    missing: list[Missing]


def search_index_twin(tables: Tables) -> SearchIndexTwin:
    """The index of a study's memories, and what it lacks because a stage has not been done."""
    return SearchIndexTwin(search_index(tables), missing(tables.study, "values", "patterns"))
