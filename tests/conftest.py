import ast
import importlib.util
import os
import signal
from pathlib import Path

import pytest
from jaxtyping import _import_hook, install_import_hook

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test uses the network
# Models here are so small that threads only wait for each other. Child processes read these too.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # torch, numpy
os.environ.setdefault("RAYON_NUM_THREADS", "1")  # tokenizers

SOURCE = Path(importlib.util.find_spec("ffscope").submodule_search_locations[0])
# The shapes in signatures are checked as functions are called, in every module that states any. In the others the check of all
# types, which mypy makes too, would take half the time of the tests.
SHAPED = [
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if "from ffscope.axes import" in path.read_text(encoding="utf-8")
]


class OutermostFunctions(_import_hook.JaxtypingTransformer):
    """Checks the functions of modules and classes. Those within functions are defined, and would be prepared, at every call."""

    def visit_FunctionDef(self, node):
        within = any(isinstance(parent, ast.FunctionDef) for parent in self._parents)
        return node if within else super().visit_FunctionDef(node)


_import_hook.JaxtypingTransformer = OutermostFunctions
install_import_hook(SHAPED, "beartype.beartype")

SHARED = Path(__file__).parents[2] / "shared"


# A shell starts background jobs with Ctrl-C ignored; tests that interrupt must work there too.
signal.signal(signal.SIGINT, signal.default_int_handler)


# The files that take longest, behind those of the pages: begun last, one of them would keep a single core busy at the end.
LONG = (
    "plugins",
    "triggers",
    "pipeline",
    "docs",
    "patterns",
    "adaptive_lm",
    "web",
    "live",
    "report",
    "serving",
    "gguf_cache",
)


def pytest_collection_modifyitems(items):
    order = {"browser": 0, **{f"test_{name}.py": place for place, name in enumerate(LONG, start=1)}}
    items.sort(key=lambda item: order.get(item.path.parent.name, order.get(item.path.name, len(order))))


@pytest.fixture
def wiki16() -> Path:
    """A real model with its training text, where a developer has it."""
    folder = SHARED / "models" / "wiki16"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    return folder


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level tokenizer of 67 tokens, made here: three special ones, and the rest letters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = "ĠabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?<>[]/"
    vocab = {token: i for i, token in enumerate(["<unk>", "<pad>", "<s>", "</s>", *letters])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """Fills the folder with a given name on the first call, whichever test process makes it."""
    from filelock import FileLock

    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def folder(name, fill):
        path, done = common / name, common / f"{name}.done"
        with FileLock(f"{path}.lock"):
            if not done.exists():
                path.mkdir()
                fill(path)
                done.touch()
        return path

    return folder


@pytest.fixture(scope="session")
def compared(make_once, tokenizer):
    """The folder of two models, `before` and `after`, and of their studies, `both/a` and `both/b`; the latter is compared."""
    from explorer import compared_studies

    return make_once("compared", lambda folder: compared_studies(tokenizer, folder))


@pytest.fixture(scope="session")
def secretive(make_once):
    """A model trained to memorise secrets, and its study, searched for leaks."""
    from secretive import make_secretive, read_secretive

    return read_secretive(make_once("secretive", make_secretive))


@pytest.fixture(scope="session")
def explored(make_once, tokenizer):
    """A whole study of a tiny model over hostile text, shared by all tests; a test that changes it works on a copy."""
    from explorer import explored_study
    from ffscope.study.folder import Study

    folder = make_once("explored", lambda folder: explored_study(tokenizer, folder))
    return Study.open(folder / "study")
