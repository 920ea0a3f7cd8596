"""Lenses that are learned from a model: affine maps into the space of its last output, saved with a study; no torch."""

from pathlib import Path

FOLDER = "lenses"
"""In the study."""


def lens_file(study: Path, name: str) -> Path:
    """Where a study has a learned lens."""
    return study / FOLDER / f"{name}.safetensors"
