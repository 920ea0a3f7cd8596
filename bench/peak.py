"""Prints the peak memory of a whole search above the loaded model, in MiB. `bench.py` runs it in a separate process."""

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


def memory(field: str) -> int:
    """This process's resident memory in KiB: `VmRSS` now, `VmHWM` the peak since the last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def reset_peak() -> None:
    """Reset the peak, because loading a model takes more memory than the loaded model."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def random_corpus(folder: str, sentences: int) -> Path:
    """A corpus of random words, if there is no real one."""
    generator = torch.Generator().manual_seed(0)
    file = Path(folder) / "text.jsonl"
    with file.open("w") as out:
        for _ in range(sentences // 19 + 1):
            picks = torch.randint(WORDS, (20, 30), generator=generator).tolist()
            text = " ".join(" ".join(f"W{pick}" for pick in sentence) + "." for sentence in picks)
            print(json.dumps({"text": text}), file=out)
    return file


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer with one token per random word."""
    vocab = {token: i for i, token in enumerate(["</s>", "<unk>", ".", *(f"W{word}" for word in range(WORDS))])}
    word_level = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    word_level.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=word_level, eos_token="</s>", unk_token="<unk>")


def main() -> None:
    sentences = int(sys.argv[1])
    _, memories = model()
    with tempfile.TemporaryDirectory() as folder:
        corpus = CORPUS
        if memories.tokenizer is None:
            corpus, memories.tokenizer = random_corpus(folder, sentences), tokenizer()
        memories.trace(memories.encode(torch.arange(2, 40)[None]))  # warm-up: lazy allocations
        reset_peak()
        before = memory("VmRSS")
        triggers(memories, CorpusOptions(str(corpus), sentences=sentences), Path(folder) / "study")
        print((memory("VmHWM") - before) // 1024)


if __name__ == "__main__":
    main()
