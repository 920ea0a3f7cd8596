"""The cost of effects compared with the forward pass: the estimate of all memories, and exact effects of a sample.

python bench/effects.py --shape paper --dtype bfloat16 --device cuda
python bench/effects.py --model ../shared/models/wiki16 --study wiki16-study

Texts are random tokens, 2 to 60 long, or the examples of a study. The estimate and the bare pass (losses only) alternate batch by
batch. In batches that the model predicts rightly one backward pass gives both effects; `--right` is their share of random texts.
"""

import argparse
import time

import numpy as np
import torch
from end_to_end import SHAPES, make_model

import ffscope
from ffscope.effects.ablation import last_outputs
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator
from ffscope.effects.exact import Exact, select
from ffscope.effects.readout import Losses, read_losses
from ffscope.effects.sums import Sums
from ffscope.effects.texts import Batch, batches_by_prediction
from ffscope.models.info import describe
from ffscope.models.loading import make_memory_model
from ffscope.models.memory_model import MemoryModel
from ffscope.search.example_pass import draw_examples
from ffscope.study.folder import Study

BOS = 0


def random_batches(model: MemoryModel, count: int, tokens: int, right: float) -> list[Batch]:
    """Batches of texts of one length each. In a share of the batches the targets are what the model predicts."""
    generator, vocab = np.random.default_rng(0), model.vocab or 1
    result: list[Batch] = []
    for length in generator.integers(2, 61, size=count).tolist():
        rows = max(1, tokens // length)
        texts, targets = generator.integers(1, vocab, size=(rows, length)), generator.integers(1, vocab, size=rows)
        batch = Batch(np.arange(rows), texts, np.full(rows, -1), targets)
        if round((len(result) + 1) * right) > round(len(result) * right):
            batch = batch._replace(targets=losses(model, batch).prediction.cpu().numpy())
        result.append(batch)
    return result


def study_batches(model: MemoryModel, folder: str) -> list[Batch]:
    """The batches in which the stage estimates effects at a study's examples."""
    study = Study.open(folder)
    examples = draw_examples(study, study.settings["examples"], study.settings["seed"])
    return batches_by_prediction(study, describe(model), examples)


def losses(model: MemoryModel, batch: Batch) -> Losses:
    """The bare pass."""
    places = batch.places(model)
    states = last_outputs(model, batch.inputs(model, BOS), places.rows, places.positions)
    return read_losses(model, states, places.targets)


def seconds(model: MemoryModel, function: object) -> float:
    """How long a call takes, the device's work included."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    function()  # type: ignore[operator]
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def race(model: MemoryModel, texts: list[Batch], steps: int) -> None:
    """Print the time of the estimate beside that of the bare pass."""
    estimator, sums = Estimator(model, Baselines(), bos=BOS, steps=steps), Sums(model.memories, model.device)
    bare = estimate = 0.0

    def estimated(batch: Batch) -> None:
        for chunk in batch.chunks(model):
            sums.begin(torch.arange(len(chunk.examples)))
            estimator.run(chunk, sums.add)
            sums.end()

    for number, batch in enumerate(texts):
        times = seconds(model, lambda: losses(model, batch)), seconds(model, lambda: estimated(batch))  # noqa: B023
        if number:  # the first call of everything is slower
            bare, estimate = bare + times[0], estimate + times[1]
    tokens = sum(batch.tokens.size for batch in texts[1:])
    print(
        f"estimate, {steps} step: {tokens / estimate:,.0f} tokens/s; bare pass {tokens / bare:,.0f}; "
        f"{estimate / bare:.2f} times the pass over {tokens:,} tokens"
    )
    if model.device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


def measure(model: MemoryModel, texts: list[Batch], memories: int, tokens: int) -> None:
    """Print the cost of exact effects."""
    sizes = [np.random.default_rng(layer).random(count) for layer, count in enumerate(model.memories)]
    exact = Exact(select(sizes, memories, 0), Baselines(), BOS, 1, tokens)
    state: dict[str, torch.Tensor] = {}
    duration = seconds(model, lambda: state.update(exact(model, texts)))
    _, runs, layer_passes, plain = state["counts"].tolist()
    length = np.mean([batch.tokens.shape[1] for batch in texts])
    print(
        f"exact effects: {runs:,} runs of texts of {length:.0f} tokens in {duration:.1f} s, {runs / duration:,.0f} a second; "
        f"{layer_passes / plain:.3f} of the layer passes that they take without sharing"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--study", help="whose examples are the texts; it must have them")
    parser.add_argument("--right", type=float, default=0.0, help="share of the random texts that are predicted rightly")
    parser.add_argument("--shape", choices=[name for name in SHAPES if SHAPES[name] is not None])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=2048, help="per batch")
    parser.add_argument("--memories", type=int, default=6, help="per layer, of which effects are measured")
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()
    if options.model:
        model = ffscope.load(options.model, options.device, options.dtype)
    else:
        torch.manual_seed(0)
        network = make_model(options.shape, 16384).to(options.device, getattr(torch, options.dtype))
        model = make_memory_model(network, None)
    if options.study:
        texts = study_batches(model, options.study)
    else:
        texts = random_batches(model, options.batches, options.tokens, options.right)
    race(model, texts, options.steps)
    if options.memories:
        measure(model, texts[:3], options.memories, options.tokens)


if __name__ == "__main__":
    main()
