"""Which parameters an address takes. Anything else in a link is refused, so that no link does less than it says."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_dependant

from ffscope.errors import InputError
from ffscope.tokens import visible

Parameters = dict[str, bool]
"""Each parameter's name, and whether it may be repeated."""
_SHOWN = 40  # characters of a name that is refused


def refuse_other_parameters(request: Request) -> None:
    """Raise for a parameter that the address does not take, and for one that is repeated and does not add up."""
    route = request.scope["route"]
    parameters = page_parameters(route.endpoint) if _is_page(route.endpoint) else dict(_declared(route.dependant))
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in parameters:
            takes = f"It takes: {', '.join(parameters)}." if parameters else "It takes none."
            raise InputError(f"This address takes no parameter {visible(name, _SHOWN)!r}. {takes}")
        if count > 1 and not parameters[name]:
            raise InputError(f"The parameter {name!r} is given {count} times. Give it once.")


def takes(*twins: Callable[..., Any], without: Iterable[str] = (), own: Iterable[str] = ()) -> Callable[..., Any]:
    """A page takes what its JSON takes, some of it apart, and what only the page needs."""

    def mark(endpoint: Any) -> Any:
        declared = [pair for twin in twins for pair in _declared(get_dependant(path="/", call=twin))]
        parameters = {name: repeats for name, repeats in declared if name not in without}
        endpoint.parameters = parameters | dict.fromkeys(own, False)
        return endpoint

    return mark


def page_parameters(endpoint: Any) -> Parameters:
    """What a page takes, as `takes` was told."""
    return endpoint.parameters


def _is_page(endpoint: Any) -> bool:
    return hasattr(endpoint, "parameters")


def _declared(dependant: Dependant) -> Iterable[tuple[str, bool]]:
    """The query parameters in a signature and in those of its dependencies; a list may be repeated."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is list
    for dependency in dependant.dependencies:
        yield from _declared(dependency)
