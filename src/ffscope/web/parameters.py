"""Which query parameters a URL takes. Others are refused, so that no part of a link is silently ignored."""

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
_SHOWN = 40  # characters of a refused name in the message


def refuse_other_parameters(request: Request) -> None:
    """Raise for a parameter that the URL does not take, and for a repeated one that may occur only once."""
    route = request.scope["route"]
    parameters = page_parameters(route.endpoint) if _is_page(route.endpoint) else dict(_declared(route.dependant))
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in parameters:
            takes = f"It takes: {', '.join(parameters)}." if parameters else "It takes none."
            raise InputError(f"This URL takes no parameter {visible(name, _SHOWN)!r}. {takes}")
        if count > 1 and not parameters[name]:
            raise InputError(f"The parameter {name!r} is given {count} times. Give it once.")


def takes(*sources: Callable[..., Any], without: Iterable[str] = (), own: Iterable[str] = ()) -> Callable[..., Any]:
    """Declare a page's parameters: those of its JSON endpoints `sources`, except `without`, and the page's `own`."""

    def mark(endpoint: Any) -> Any:
        declared = [pair for source in sources for pair in _declared(get_dependant(path="/", call=source))]
        parameters = {name: repeats for name, repeats in declared if name not in without}
        endpoint.parameters = parameters | dict.fromkeys(own, False)
        return endpoint

    return mark


def page_parameters(endpoint: Any) -> Parameters:
    """The parameters of a page, as declared with `takes`."""
    return endpoint.parameters


def _is_page(endpoint: Any) -> bool:
    return hasattr(endpoint, "parameters")


def _declared(dependant: Dependant) -> Iterable[tuple[str, bool]]:
    """The query parameters of an endpoint and its dependencies, and whether each may be repeated (those of list type)."""
    for field in dependant.query_params:
        yield field.alias, get_origin(field.field_info.annotation) is list
    for dependency in dependant.dependencies:
        yield from _declared(dependency)
