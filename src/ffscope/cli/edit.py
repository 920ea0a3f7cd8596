"""The command that writes edits of memories into weights, searches for one that promotes a token, and undoes one."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ffscope.cli.loading import load_model
from ffscope.cli.output import print_line, program_name
from ffscope.cli.parameters import Json, Model
from ffscope.cli.progress_output import out, showing_progress, working
from ffscope.cli.signature import command
from ffscope.edit_command import edit_command, quoted
from ffscope.errors import InputError
from ffscope.memory_name import parse_name
from ffscope.options.edit import PromoteOptions, WrittenOptions
from ffscope.options.model import LoadOptions
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.editing.promote import Prediction, Promotion
    from ffscope.models.memory_model import MemoryModel

Zero = Annotated[
    list[str] | None,
    typer.Option(
        "--zero",
        metavar="NAMES",
        help="Memories and whole layers whose coefficients become 0: L12.345,L4. Can be repeated.",
    ),
]
Scale = Annotated[
    list[str] | None,
    typer.Option(
        "--scale", metavar="NAME=FACTOR", help="Multiply their coefficients: L3.4=2,L5.6=0.5. Can be repeated."
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=NUMBER",
        help="Set their coefficients at every token; needs an output projection with a bias. Can be repeated.",
    ),
]
Promote = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--promote",
        metavar="TEXT TOKEN",
        help="Find few memories that make TOKEN the prediction after TEXT. With --out, write that edit.",
    ),
]
Undo = Annotated[
    bool, typer.Option("--undo", help="Take back the last edit of MODEL, a folder written by this command.")
]
NewModel = Annotated[Path | None, typer.Option("--out", help="The new folder of the edited model.")]


@command()
def edit(
    model: Model,
    *,
    zero: Zero = None,
    scale: Scale = None,
    set: Set = None,
    promote: Promote = None,
    undo: Undo = False,
    out_: NewModel = None,
    options: WrittenOptions,
    search: PromoteOptions,
    load: LoadOptions,
    json_: Json = False,
) -> None:
    """Write a change of memories into the weights of MODEL, as a new folder; find one that promotes a token; or undo one.

    The written model equals the one edited live, which is checked before its folder appears. Beside its weights are
    ffscope-edit.json, with what was done, and ffscope-edit.safetensors, with the original values.
    """
    changes: dict[str, Any] = {"zero": _names(zero), "scale": _numbers("--scale", scale), "set": _numbers("--set", set)}
    _check(changes, promote=promote is not None, undo=undo, out=out_)
    if undo:
        assert out_ is not None
        _undo(model, out_, load, as_json=json_)
        return
    loaded = load_model(model, _as_studied(load, options.study))
    with showing_progress("Nothing was written.") as progress:
        arguments: dict[str, Any] = {**asdict(options), "progress": progress}
        if promote is not None:
            _promote(loaded, promote, out_, as_json=json_, **arguments, **asdict(search))
            return
        from ffscope.editing.written import edit

        assert out_ is not None
        del arguments["bos"], arguments["position"]
        edited = edit(loaded, out_, **changes, **arguments)
    if json_:
        out.print_json(json.dumps(asdict(edited)))
        return
    print_line(str(edited))
    _print_written(out_)


def _check(changes: dict[str, Any], *, promote: bool, undo: bool, out: Path | None) -> None:
    """Raise for arguments that do not go together, before a model is loaded."""
    if [any(changes.values()), promote, undo].count(True) != 1:
        raise InputError(
            "Expected one thing to do: changes of memories (--zero L12.345, --scale L3.4=2, --set L3.4=1.5), "
            "--promote TEXT TOKEN, or --undo."
        )
    if out is None and not promote:
        raise InputError("Expected a new folder for the model that is written: name one with --out.")
    if out is not None:
        from ffscope.models.written import refuse_existing

        refuse_existing(out)


def _terms(values: Sequence[str] | None) -> list[str]:
    return [term.strip() for value in values or () for term in value.split(",") if term.strip()]


def _names(values: Sequence[str] | None) -> list[str]:
    names = _terms(values)
    for name in names:
        parse_name(name)
    return names


def _numbers(option: str, values: Sequence[str] | None) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for term in _terms(values):
        name, equals, text = (piece.strip() for piece in term.partition("="))
        parse_name(name)
        try:
            number = float(text)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"Expected a memory and a number for {option}, such as {name}=2; found {term[:60]!r}.")
        if name in numbers:
            raise InputError(f"{name} is changed twice by {option}. Name it once.")
        numbers[name] = number
    return numbers


def _as_studied(load: LoadOptions, study: str | None) -> LoadOptions:
    """The precision and type that a study records, where none is chosen."""
    if study is None:
        return load
    from ffscope.study.folder import Study

    recorded = Study.open(study).manifest["model"]
    dtype = recorded["dtype"] if load.dtype == "auto" else load.dtype
    return replace(load, dtype=dtype, model_type=load.model_type or recorded.get("model_type"))


def _undo(model: str, folder: Path, load: LoadOptions, *, as_json: bool) -> None:
    with working(f"Undoing the last edit of {model} …"):
        from ffscope.editing.undo import undo

        undone = undo(model, folder, trust_remote_code=load.trust_remote_code)
    if as_json:
        out.print_json(json.dumps(asdict(undone)))
        return
    count = len(undone.memories)
    source = visible(undone.source, None)
    print_line(f"{count:,} {'memory' if count == 1 else 'memories'} restored: the weights are those of {source}.")
    print_line(f"Written to {visible(str(folder), None)}.")


def _promote(
    model: "MemoryModel", wanted: tuple[str, str], folder: Path | None, *, as_json: bool, **options: Any
) -> None:
    from ffscope.editing.promote import promote

    promotion = promote(model, *wanted, out=folder, **options)
    if as_json:
        out.print_json(json.dumps(asdict(promotion)))
    else:
        _print_promotion(model, promotion, folder)
    if not promotion.works:
        raise typer.Exit(1)


def _print_promotion(model: "MemoryModel", promotion: "Promotion", folder: Path | None) -> None:
    token = promotion.token.token
    if promotion.works and not promotion.memories:
        print_line(f"{token} is the prediction already: {_in_words(promotion.before)}. Nothing is changed.")
        return
    print_line(f"before: {_in_words(promotion.before)}")
    print_line(f"{'after' if promotion.works else 'closest'}: {_in_words(promotion.after)}")
    _print_memories(model, promotion)
    if not promotion.works:
        print_line(f"No edit was found that makes {token} the prediction. {promotion.why}")
        return
    if len(promotion.memories) == 1:
        print_line(f"Without it, {token} is not the prediction.")
    else:
        print_line(
            f"Without any one of them, at these factors, {token} is not the prediction; other sets may be smaller."
        )
    from ffscope.editing.record import side_effects_in_words

    print_line(side_effects_in_words(promotion.side_effects))
    if folder is not None:
        _print_written(folder)
    else:
        print_line("Write it:")
        print_line(edit_command(promotion.model, scale=promotion.factors))


def _in_words(prediction: "Prediction") -> str:
    return (
        f"the token has rank {prediction.rank:,} ({prediction.probability:.2%}); the model predicts {prediction.predicted} "
        f"({prediction.predicted_probability:.2%})"
    )


def _print_memories(model: "MemoryModel", promotion: "Promotion") -> None:
    from ffscope.analysis.trace import promoted
    from ffscope.memory_name import Memory

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("memory", "left"), ("factor", "right"), ("coefficient", "right"), ("promotes", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in promotion.memories:
        layer, memory = Memory.parse(row.memory)
        coefficient = promotion.coefficients[row.memory]
        (tokens,) = promoted(model, model.lens("norm"), layer=layer, coefficients={memory: coefficient})
        cells = (Text(row.memory, style="magenta"), f"{row.factor:.3g}", f"{coefficient:.2f}", Text(" ".join(tokens)))
        table.add_row(*cells)
    out.print(table)


def _print_written(folder: Path) -> None:
    path = quoted(str(folder))
    print_line(f"Written to {visible(str(folder), None)}. To undo it:")
    print_line(f"{program_name()} edit {path} --undo --out NEW_FOLDER")
