"""The wheel and the source distribution of this checkout, built without the network."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(target: str, folder: Path, *, root: Path = ROOT) -> Path:
    """Build "wheel" or "sdist" into a folder and give its path."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    (file,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return file
