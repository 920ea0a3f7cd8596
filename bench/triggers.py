"""The overhead of the search for triggers over the bare forward pass of the model's body, on the same batches.

python bench/triggers.py                                       16 layers, 256 wide, 1,024 memories each, random weights
python bench/triggers.py --shape paper --dtype bfloat16        16 layers, 1,024 wide, 4,096 memories each, random weights
python bench/triggers.py --shape adaptive --dtype bfloat16     the paper's own architecture at its size, random weights
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import OPTConfig, OPTForCausalLM

from ffscope import MemoryModel, read
from ffscope.corpus.batches import Batch, Chunk, batches
from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig
from ffscope.models.attention import kernels_for_any_shape
from ffscope.search.execute import Search
from ffscope.search.passes import sentence_inputs
from ffscope.search.plan import batch_rows, batch_tokens, rarity

# hidden, memories, vocabulary
SHAPES = {"wiki16": (256, 1024, 16384), "paper": (1024, 4096, 50265), "adaptive": (1024, 4096, 267744)}


def random_model(shape: str, *, device: str, dtype: torch.dtype) -> MemoryModel:
    """A model with sixteen layers and random weights."""
    hidden, memories, vocab = SHAPES[shape]
    torch.manual_seed(0)
    if shape == "adaptive":
        return read(AdaptiveLM(AdaptiveLMConfig()).to(device, dtype))
    config = OPTConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        ffn_dim=memories,
        num_hidden_layers=16,
        num_attention_heads=hidden // 64,
        max_position_embeddings=512,
        word_embed_proj_dim=hidden,
    )
    return read(OPTForCausalLM(config).to(device, dtype))


def random_chunks(sentences: int, vocab: int, length: int | None) -> Iterator[Chunk]:
    """Sentences of random tokens: of one length, or with a length distribution like an encyclopedia's."""
    generator = np.random.default_rng(0)
    prefix = 0
    for start in range(0, sentences, 4096):
        count = min(4096, sentences - start)
        lengths = np.clip(generator.gamma(4.0, 8.3, count).astype(np.int64), 2, 128)
        if length is not None:
            lengths[:] = length
        tokens = generator.integers(3, vocab, int(lengths.sum()), dtype=np.int32)
        yield Chunk(np.arange(start, start + count), prefix + np.cumsum(lengths) - lengths, lengths, tokens)
        prefix += int(lengths.sum())


class Race:
    """Times the bare body and the search, alternating batch by batch."""

    def __init__(self, model: MemoryModel, *, prefixes: int, top: int, bos: bool = False) -> None:
        self.model = model
        self.search = Search(model, top=top, bos=bos, rarity=rarity(prefixes))
        own: Any = model.model
        self.body = own.body if hasattr(own, "body") else partial(own.base_model, use_cache=False)
        self.bare: list[float] = []
        self.searched: list[float] = []
        self.prefixes: list[int] = []

    def run(self, batches: Iterable[Batch]) -> None:
        for number, batch in enumerate(batches):
            if number == 0:
                self._warm_up(batch)
            # Alternate which goes first: the first run of a new length is slower.
            runners = [self._run_bare, self._run_search]
            for runner in runners if number % 2 else reversed(runners):
                runner(batch)
            self.prefixes.append(batch.tokens.size)

    def _run_bare(self, batch: Batch) -> None:
        self.bare.append(self._seconds(lambda: self._forward(batch)))

    def _run_search(self, batch: Batch) -> None:
        # On a GPU batches are prepared in another thread while an earlier one runs.
        run = partial(self.search.run, batch)
        if self.model.device.type == "cuda":
            run = partial(self.search.run_prepared, self.search.prepare(batch))
        with self.search.tapping():
            self.searched.append(self._seconds(run))

    def _warm_up(self, batch: Batch) -> None:
        """Run both once, to exclude one-time costs such as compiling kernels."""
        self._forward(batch)
        trial = Search(self.model, top=2, rarity=1024)
        with trial.tapping():
            trial.run(batch)

    @torch.no_grad()
    def _forward(self, batch: Batch) -> None:
        with kernels_for_any_shape(self.model.device):  # the fastest over many shapes: see bench/attention.py
            self.body(sentence_inputs(self.search.model, batch.tokens, self.search.bos)["input_ids"])

    def _seconds(self, run: Callable[[], object]) -> float:
        self._wait()
        start = time.perf_counter()
        run()
        self._wait()
        return time.perf_counter() - start

    def _wait(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize()

    def report(self, name: str, *, at_most: float) -> None:
        whole = sum(self.searched) / sum(self.bare)
        half = len(self.bare) // 2
        later = sum(self.searched[half:]) / sum(self.bare[half:])
        first = [round(s / b, 2) for s, b in zip(self.searched[:8], self.bare, strict=False)]
        verdict = "OK" if whole <= at_most else "EXCEEDED"
        print(
            f"{name}: {whole:.3f} over {len(self.bare)} batches ({later:.3f} over the later half), at most {at_most}: {verdict}"
        )
        total = sum(self.prefixes)
        print(
            f"  bare {total / sum(self.bare):,.0f} prefixes/s, search {total / sum(self.searched):,.0f} prefixes/s; "
            f"median batch {statistics.median(self.prefixes):,.0f} prefixes; one prefix in {self.search.rarity} counted"
        )
        print(f"  the first batches, where most prefixes are still among the highest: {first}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="wiki16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--length", type=int, help="length of all sentences")
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--batch-tokens", type=int)
    options = parser.parse_args()
    model = random_model(options.shape, device=options.device, dtype=getattr(torch, options.dtype))
    where = torch.cuda.get_device_name() if options.device == "cuda" else f"{torch.get_num_threads()} threads"
    print(
        f"random weights, {options.shape}'s shape, {options.dtype}; torch {torch.__version__}, {where}, {platform.machine()}"
    )
    chunks = list(random_chunks(options.sentences, SHAPES[options.shape][2], options.length))
    prefixes = sum(len(chunk.tokens) for chunk in chunks)
    race = Race(model, prefixes=prefixes, top=options.top)
    corpus_batches = batches(
        iter(chunks),
        tokens=options.batch_tokens or batch_tokens(model, race.search.rarity),
        before=0,
        rows=batch_rows(model),
    )
    race.run(corpus_batches)
    race.report("search over the bare body", at_most=1.10)
    if options.device == "cuda":
        print(f"  peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB on the device")


if __name__ == "__main__":
    main()
