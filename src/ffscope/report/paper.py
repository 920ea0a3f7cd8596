"""What Geva et al. (2021) state, to stand beside a study's own numbers."""

import json
from importlib.resources import files
from typing import Any

PAPER: dict[str, Any] = json.loads(files("ffscope.report").joinpath("paper.json").read_text(encoding="utf-8"))
