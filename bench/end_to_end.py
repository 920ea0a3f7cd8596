"""The search as a user runs it: `ffscope triggers` from text to written tables, and where its time goes.

python bench/end_to_end.py --corpus wiki.jsonl.xz --shape paper --dtype bfloat16 [--articles 3500] [--race 60]

Makes a model with random weights in a temporary folder, runs the command on it, and prints the parts. With --race, the search is
then compared with the bare forward pass over that many of the same batches.
"""

import argparse
import json
import lzma
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedTokenizerFast,
)

SHARED = Path(__file__).parents[2] / "shared"
# layers, hidden, memories per layer, heads, key–value heads; None for OPT
SHAPES = {
    "tiny": (2, 64, 256, 2, None),
    "wiki16": (16, 256, 1024, 4, None),
    "paper": (16, 1024, 4096, 16, None),
    "smollm2": (30, 576, 1536, 9, 3),
    "llama-1b": (16, 2048, 8192, 32, 8),
}


def make_tokenizer(folder: Path | None, texts: Iterator[str]) -> Any:
    """The tokenizer of a folder, or a byte-level one of 16,384 tokens trained on the beginning of the text."""
    if folder is not None:
        return AutoTokenizer.from_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16384, special_tokens=["</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(islice(texts, 500), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="</s>", eos_token="</s>")


def make_model(shape: str, vocab: int) -> Any:
    """A model with random weights."""
    layers, hidden, memories, heads, groups = SHAPES[shape]
    torch.manual_seed(0)
    common = {"vocab_size": vocab, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads}
    if groups is None:
        return OPTForCausalLM(
            OPTConfig(**common, ffn_dim=memories, max_position_embeddings=512, word_embed_proj_dim=hidden)
        )
    config = LlamaConfig(**common, intermediate_size=memories, num_key_value_heads=groups, max_position_embeddings=2048)
    return LlamaForCausalLM(config)


def prepare(folder: Path, shape: str, dtype: str, tokenizer_folder: Path | None, texts: Iterator[str]) -> None:
    """Write a model with random weights, and its tokenizer, into a folder."""
    tokenizer = make_tokenizer(tokenizer_folder, texts)
    weights = torch.float32 if dtype == "auto" else getattr(torch, dtype)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):  # where random numbers are fast
        make_model(shape, len(tokenizer)).to(weights).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def print_machine(shape: str, dtype: str) -> None:
    """Print what is measured, and on what."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"{shape}, {dtype}; torch {torch.__version__}, {where}, {os.cpu_count()} cores, {platform.machine()}")


def articles(corpus: Path) -> Iterator[str]:
    """The texts of a .jsonl file."""
    with lzma.open(corpus, "rt") if corpus.suffix == ".xz" else corpus.open() as lines:
        for line in lines:
            yield json.loads(line)["text"]


def first_articles(corpus: Path, count: int, folder: Path) -> Path:
    """A compressed file with the first articles."""
    file = folder / "text.jsonl.xz"
    with lzma.open(file, "wt", preset=1) as out:
        for text in islice(articles(corpus), count):
            print(json.dumps({"text": text}), file=out)
    return file


def environment(bytecode: Path | None, model: Path) -> dict[str, str]:
    """The command's environment. With a folder for bytecode, all imports of the command are compiled into it first."""
    if bytecode is None:
        return dict(os.environ)
    compiled = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode)}
    compiled.pop("PYTHONDONTWRITEBYTECODE", None)
    imports = "import ffscope.cli, ffscope.pipeline; from ffscope import load; load(__import__('sys').argv[1])"
    subprocess.run([sys.executable, "-c", imports, str(model)], check=True, env=compiled, capture_output=True)
    return compiled


def run_command(words: list[str], study: Path, env: dict[str, str]) -> None:
    """Run the command, and print the time of its parts."""
    begin = time.time()
    subprocess.run([sys.executable, "-m", "ffscope", *words], check=True, env=env)
    end = time.time()
    manifest = json.loads((study / "study.json").read_text())
    reading, search = (manifest["stages"][name]["seconds"] for name in ("sentences", "triggers"))
    searched, read = manifest["corpus"]["searched"]["prefixes"], manifest["corpus"]["prefixes"]
    opened = (study / ".lock").stat().st_mtime  # the model is loaded and proven
    written = (study / "study.json").stat().st_mtime
    print(f"whole command: {end - begin:.1f} s, {searched / (end - begin):,.0f} prefixes/s ({searched:,} searched)")
    print(f"  imports, loading, proof: {opened - begin:.1f} s")
    print(f"  search, with the wait for its first text: {search:.1f} s, {searched / search:,.0f} prefixes/s")
    print(f"  preparing the search, and writing: {written - opened - search:.1f} s; end: {end - written:.1f} s")
    print(f"  reading, beside these: {reading:.1f} s, {read / reading:,.0f} tokens/s")


def race(folder: Path, study: Path, options: argparse.Namespace) -> None:
    """Compare the search with the bare forward pass, over some of the same batches in random order."""
    from triggers import Race

    from ffscope import load
    from ffscope.corpus.batches import batches
    from ffscope.corpus.prefixes import chunks
    from ffscope.search.plan import batch_rows, batch_tokens

    model = load(folder, options.device, options.dtype)
    prefixes = json.loads((study / "study.json").read_text())["corpus"]["searched"]["prefixes"]
    contest = Race(model, prefixes=prefixes, top=50, bos=True)
    sentences = chunks(study / "sentences.parquet")
    tokens = batch_tokens(model, contest.search.rarity)
    all_batches = list(batches(sentences, tokens=tokens, before=1, rows=batch_rows(model)))
    print(f"  {len(all_batches)} batches, {len({batch.tokens.shape for batch in all_batches})} shapes")
    picked = random.Random(0).sample(range(len(all_batches)), min(options.race, len(all_batches)))
    contest.run([all_batches[number] for number in sorted(picked)])
    contest.report("search over the bare body", at_most=1.10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=SHARED / "corpora" / "wiki-train.jsonl.xz")
    parser.add_argument("--articles", type=int, help="use only the first ones")
    parser.add_argument("--shape", choices=SHAPES, default="wiki16")
    parser.add_argument("--tokenizer", type=Path, help="a folder; by default one is trained")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--readers", type=int)
    parser.add_argument(
        "--bytecode", action="store_true", help="compile all imports first, where pip did not and Python may not"
    )
    parser.add_argument("--race", type=int, default=0, metavar="BATCHES")
    options = parser.parse_args()
    print_machine(options.shape, options.dtype)
    with tempfile.TemporaryDirectory() as name:
        folder, study = Path(name) / "model", Path(name) / "study"
        prepare(folder, options.shape, options.dtype, options.tokenizer, articles(options.corpus))
        text = options.corpus
        if options.articles:
            text = first_articles(options.corpus, options.articles, Path(name))
        words = ["triggers", str(folder), "--corpus", str(text), "--out", str(study)]
        words += ["--device", options.device, "--dtype", options.dtype]
        for option in ("sentences", "readers"):
            if (number := getattr(options, option)) is not None:
                words += [f"--{option}", str(number)]
        run_command(words, study, environment(Path(name) / "bytecode" if options.bytecode else None, folder))
        if options.race:
            race(folder, study, options)


if __name__ == "__main__":
    main()
