"""The model that is loaded in a worker process: what refers to the model elsewhere refers to this one when it arrives here."""

from typing import Any

from ffscope.errors import EngineError

_models: list[Any] = []


def set_model_here(model: Any) -> None:
    """Make a model the one that unpickled objects refer to."""
    _models[:] = [model]


def model_here() -> Any:
    """The model of this process."""
    if not _models:
        raise EngineError("An object that refers to a model was unpickled where no model is loaded.")
    return _models[0]


def lens_here(name: str, study: Any) -> Any:
    """A lens of the model of this process."""
    return model_here().lens(name, study)
