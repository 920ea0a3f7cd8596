"""Figures as vega-lite specifications that can be displayed and saved."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import vl_convert

from ffscope.errors import StudyError
from ffscope.report.catalogue import charted, guarded
from ffscope.report.drawing import titled
from ffscope.report.figure_page import figure_page
from ffscope.report.patterns import select_annotators

Spec = dict[str, Any]
_WRITERS: dict[str, Callable[["DrawnFigure"], bytes]] = {
    "png": lambda figure: vl_convert.vegalite_to_png(figure.spec, scale=2.0),
    "svg": lambda figure: figure.svg().encode(),
    "pdf": lambda figure: vl_convert.vegalite_to_pdf(figure.spec),
    # A name may contain a lone surrogate, which UTF-8 cannot encode; JSON has the same escape.
    "html": lambda figure: figure_page(figure.title, figure.bare().spec).encode("utf-8", "backslashreplace"),
    "json": lambda figure: json.dumps(figure.spec, indent=1).encode(),
}
FORMS = tuple(_WRITERS)


@dataclass(frozen=True)
class DrawnFigure:
    """A figure with its title; a notebook displays it. `spec` is its vega-lite specification."""

    name: str
    number: int | None  # in the paper
    title: str
    spec: Spec

    def bare(self) -> "DrawnFigure":
        """The same without the title in the drawing, for a paper that has its own caption."""
        return replace(self, spec={name: part for name, part in self.spec.items() if name != "title"})

    def svg(self) -> str:
        """The figure as SVG, made without a browser or the network."""
        return vl_convert.vegalite_to_svg(self.spec)

    def save(self, path: Path | str, form: str | None = None) -> None:
        """Write it as png, svg, pdf, html (needs no network) or json (vega-lite): by `form`, else by the file name."""
        form = form or Path(path).suffix.removeprefix(".").lower()
        if form not in FORMS:
            raise StudyError(
                f"A figure can be saved as {', '.join(FORMS)}, not as {form!r}. Use a file name such as {self.name}.png."
            )
        Path(path).write_bytes(_WRITERS[form](self))

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, str]:
        caption = self.title if self.number is None else f"Figure {self.number}: {self.title}"
        return {"image/svg+xml": self.svg(), "text/plain": caption}


def draw(name: str, summary: dict[str, Any], annotators: list[str] | None = None) -> DrawnFigure:
    """One figure by name; the patterns figure has a panel for each of these annotators, by default for all."""
    figures = charted()
    if name not in figures:
        raise StudyError(f"There is no figure {name!r}. The figures are: {', '.join(figures)}.")
    if name not in summary:
        raise StudyError(f"This study has no data for the figure {name!r} yet. It has data for: {', '.join(summary)}.")
    figure = figures[name]
    assert figure.chart is not None
    chart = figure.chart(select_annotators(summary, annotators)[name])
    return DrawnFigure(name, figure.number, figure.title, titled(chart, figure.title))


def draw_all(summary: dict[str, Any]) -> list[DrawnFigure]:
    """Every figure that a study has data for, in the paper's order."""
    drawn = []
    for name, figure in charted().items():
        with guarded(figure):
            if name in summary:
                drawn.append(draw(name, summary))
    return drawn
