"""Facts embedded in every page: the study, its stages, the measures, and the glossary."""

import hashlib
import os
from dataclasses import asdict
from typing import Any

from ffscope.cases import CASE_MEANINGS, CASES
from ffscope.glossary import GLOSSARY
from ffscope.models.lenses import lenses_of
from ffscope.stages.registry import measures, stages
from ffscope.study.folder import Study
from ffscope.study.public import folder_name, public_name


def study_name(study: Study) -> str:
    """The model's name, which is also the study's."""
    model = study.manifest["model"]
    return public_name(model["source"] or model["family"])


def about(study: Study) -> dict[str, Any]:
    """The facts that every page needs in addition to its own JSON."""
    memories = study.manifest["model"]["memories"]
    return {
        "name": study_name(study),
        "layers": len(memories),
        "memories": memories,
        "folder": folder_name(study.folder),
        "id": hashlib.sha256(os.fsencode(study.folder.resolve())).hexdigest()[
            :16
        ],  # distinguishes studies with the same name
        "top": study.settings["top"],
        "lens": study.settings.get("lens"),
        "lenses": lenses_of(study.folder),
        "stages": [stage for stage in study.manifest["stages"] if study.has(stage)],
        "measures": described_measures(study),
        "missing": {name: row.missing or f"The stage {name} has not been run yet." for name, row in stages().items()},
        "glossary": GLOSSARY,
        "cases": {name: CASE_MEANINGS[name] for name in CASES},
    }


def described_measures(study: Study) -> list[dict[str, Any]]:
    """Every measure as its stage declares it, in column order, without its SQL.

    Those of an optional stage are left out of a study without it.
    """
    described = []
    for row, measure in measures().values():
        if row.optional and not study.has(row.name):
            continue
        fields = asdict(measure)
        del fields["sql"]
        described.append({"stage": row.name, **fields})
    return described
