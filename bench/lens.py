"""The training of the tuned lens beside that of the tuned-lens library, on the same model, text, steps and states.

    python bench/lens.py MODEL STUDY [--steps 250] [--tokens 512] [--library FOLDER] [--out FILE]

What the library calls hidden state i + 1 is the output of layer i. Its translators are trained with its own modules, and with the
optimizer, schedule, clipping and loss of its command line (version 0.2.0; in float32, without autocast). FOLDER is where it was
installed, with `pip install --no-deps --target FOLDER tuned-lens==0.2.0`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from transformers import get_linear_schedule_with_warmup

import ffscope
from ffscope.models.info import describe
from ffscope.search.example_pass import batches_of, draw_examples, states_of
from ffscope.search.passes import bos_of
from ffscope.study.folder import Study
from ffscope.translators.texts import training_text
from ffscope.translators.tuned import Schedule, Training, divergence, validation_interval


def ours(model, text, bos):
    """Our translators of the outputs, and the seconds of the training."""
    start = time.perf_counter()
    training = Training(model, text, Schedule(len(text.steps), 99, validation_interval(len(text.steps))), bos)
    training.run(lambda: None)
    maps = {layer: training.best["output", layer] for layer in range(model.layers - 1)}
    return lambda layer, states: states @ maps[layer].weight.T + maps[layer].bias, time.perf_counter() - start


def librarys(model, text, bos, *, adam):
    """The library's translators of the same states, and the seconds of their training."""
    from tuned_lens.nn.lenses import TunedLens

    lens = TunedLens.from_model(model.model).to(model.device)
    parameters = list(lens.layer_translators.parameters())
    steps = len(text.steps)
    if adam:
        optimizer = torch.optim.Adam(parameters, lr=1e-3, betas=(0.9, 0.999), amsgrad=True, weight_decay=1e-3)
    else:
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    # Its check for Adam compares an enumeration with a string, so that neither optimizer warms up.
    schedule = get_linear_schedule_with_warmup(optimizer, 0, steps)
    training = Training(model, text, Schedule(steps, 99, steps), bos)  # for its states alone
    start = time.perf_counter()
    for sentences in text.steps:
        rows = training._rows(sentences)
        for at in torch.arange(len(rows.last)).split(model.lens().chunk):
            labels = model.lens().logits(rows.last[at]).float().log_softmax(-1).detach()
            for layer in range(model.layers - 1):
                logits = lens(rows.states["output", layer][at], idx=layer + 1)
                loss = torch.sum(labels.exp() * (labels - logits.log_softmax(-1)), dim=-1).sum() / len(rows.last)
                loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        schedule.step()
    return lambda layer, states: lens.transform_hidden(states, layer + 1), time.perf_counter() - start


@torch.no_grad()
def held_out_divergence(model, study, bos, translate, examples):
    """The mean divergence of every layer's output at held-out examples."""
    drawn = draw_examples(study, examples, study.settings["seed"])
    sums, count = torch.zeros(model.layers - 1, dtype=torch.float64), 0
    for batch in batches_of(study, describe(model), drawn):
        states = states_of(model, batch, bos)
        for at in torch.arange(len(batch.examples)).split(model.lens().chunk):
            target = model.lens().logits(states.output[-1][at]).float().softmax(-1)
            for layer in range(model.layers - 1):
                logits = model.lens().logits(translate(layer, states.output[layer][at].float()))
                sums[layer] += divergence(logits, target).double().sum().cpu()
        count += len(batch.examples)
    return (sums / count).tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("study", type=Path)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--examples", type=int, default=4000)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    study = Study.open(options.study)
    model = ffscope.load(options.model, dtype="float32")
    bos = bos_of(study, describe(model))
    text = training_text(study, steps=options.steps, tokens=options.tokens, validation=2048, seed=0)
    ways = {"norm lens": lambda: (lambda _, states: states, 0.0), "ffscope": lambda: ours(model, text, bos)}
    if options.library:
        sys.path.insert(0, str(options.library))
        ways["tuned-lens"] = lambda: librarys(model, text, bos, adam=False)
        ways["tuned-lens, adam"] = lambda: librarys(model, text, bos, adam=True)
    rows = {}
    for name, way in ways.items():
        translate, seconds = way()
        layers = held_out_divergence(model, study, bos, translate, options.examples)
        rows[name] = {"mean": sum(layers) / len(layers), "seconds": seconds, "layers": layers}
        print(f"{name}: {rows[name]['mean']:.4f} nats, {seconds:.1f} s", flush=True)
    result = {"steps": options.steps, "tokens": options.tokens, "device": str(model.device), "divergence": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
