import os
import signal
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the network

SHARED = Path(__file__).parents[2] / "shared"


# A shell starts what it puts in the background deaf to Ctrl-C; tests that interrupt must be heard there too.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
    made = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
