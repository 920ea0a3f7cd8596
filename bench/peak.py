"""Prints how much memory a whole search took above the loaded model, in MiB. `bench.py` calls it in a process of its own."""

import gc
import json
import sys
import tempfile
from pathlib import Path

import torch
from bench import CORPUS, model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ffscope.options.corpus import CorpusOptions
from ffscope.pipeline import triggers

WORDS = 16_000


def memory(what: str) -> int:
    """This process's resident memory in KiB: `VmRSS` now, `VmHWM` the most since it was last forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what))


def forget_the_most() -> None:
    """Loading a model takes more than the loaded model does; what comes after is to be measured."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def made_up(folder: str, sentences: int) -> Path:
    """A corpus of random words, where there is no real one."""
    generator = torch.Generator().manual_seed(0)
    file = Path(folder) / "text.jsonl"
    with file.open("w") as out:
        for _ in range(sentences // 19 + 1):
            picks = torch.randint(WORDS, (20, 30), generator=generator).tolist()
            text = " ".join(" ".join(f"W{pick}" for pick in sentence) + "." for sentence in picks)
            print(json.dumps({"text": text}), file=out)
    return file


def tokenizer() -> PreTrainedTokenizerFast:
    """One token for each of those words."""
    vocab = {token: i for i, token in enumerate(["</s>", "<unk>", ".", *(f"W{word}" for word in range(WORDS))])}
    made = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", unk_token="<unk>")


def main() -> None:
    sentences = int(sys.argv[1])
    _, memories = model()
    with tempfile.TemporaryDirectory() as folder:
        corpus = CORPUS
        if memories.tokenizer is None:
            corpus, memories.tokenizer = made_up(folder, sentences), tokenizer()
        memories.trace(memories.encode(torch.arange(2, 40)[None]))  # so that what is loaded once is loaded
        forget_the_most()
        before = memory("VmRSS")
        triggers(memories, CorpusOptions(str(corpus), sentences=sentences), Path(folder) / "study")
        print((memory("VmHWM") - before) // 1024)


if __name__ == "__main__":
    main()
