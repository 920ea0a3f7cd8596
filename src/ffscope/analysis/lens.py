"""Learns the tuned and the jacobian lens of a study's model, saves them with the study, and compares all lenses."""

import logging
import time
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file

from ffscope.axes import Array
from ffscope.effects.estimated import mean_interval
from ffscope.effects.shards import added, summed
from ffscope.errors import CorpusError
from ffscope.models.lenses import ChosenLens, is_learned, lens_names
from ffscope.models.lenses.learned import FOLDER, lens_file
from ffscope.models.lenses.learned.base import Translator, translator_tensors
from ffscope.progress import Progress
from ffscope.search.example_pass import Examples, batches_of, draw_examples
from ffscope.search.following import tokens_after_triggers
from ffscope.search.interrupts import delayed_interrupt
from ffscope.search.passes import bos_of
from ffscope.search.plan import batch_tokens
from ffscope.stages.lens import STAGE, LensTrainingOptions
from ffscope.stages.stage import Work
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS
from ffscope.translators.comparison import StateReadings, ValueReadings, distances
from ffscope.translators.jacobian import sentence_jacobians
from ffscope.translators.states import translated_states
from ffscope.translators.texts import training_text
from ffscope.translators.tuned import Schedule, Training, validation_interval

logger = logging.getLogger(__name__)
_SAVE_EVERY = 30.0  # seconds between checkpoints


def run(work: Work) -> None:
    """Run the stage. What is learned is kept if a search follows; only the comparison is then made again."""
    study, settings, options = work.study, STAGE.settings(work.options), work.options(LensTrainingOptions)
    study.need("sentences")
    work.info.check_lens("norm")
    _default_settings(work)
    learned = {"tuned": options.lens_steps, "jacobian": options.jacobian_sentences}
    names = [name for name, amount in learned.items() if amount]
    entry = study.manifest["stages"].get("lens", {})
    finished = study.done("lens", settings) and all(lens_file(study.folder, name).is_file() for name in names)
    if finished and entry["searched"] == study.has("triggers"):
        return
    start = time.perf_counter()
    draw_examples(study, 1, study.settings["seed"])  # raises, before anything is learned, if there are none
    entries: dict[str, Any] = {name: entry[name] for name in names if name in entry}
    folder = ResumableFolder(study, "lens", settings)
    if not finished:
        learners = {"tuned": _learn_translators, "jacobian": _estimate_jacobians}
        entries = {name: learners[name](work, folder) for name in names}
    with study.table("lenses.parquet") as writer:
        writer.write_table(pa.Table.from_pydict(_compare(work, folder, names), SCHEMAS["lenses.parquet"]))
    seconds = time.perf_counter() - start
    study.finish("lens", settings, seconds=seconds, searched=study.has("triggers"), **entries)
    folder.drop()


def _default_settings(work: Work) -> None:
    """The settings of a search, where there has been none: a search that follows must have the same."""
    defaults = {"bos": True, "seed": 0, "batch_tokens": batch_tokens(work.info, 1)}
    for name, value in defaults.items():
        work.study.settings.setdefault(name, value)


def _learn_translators(work: Work, folder: ResumableFolder) -> dict[str, Any]:
    """Train the translators, unless that is done, and save them; returns the entry for study.json."""
    options, study = work.options(LensTrainingOptions), work.study
    text = training_text(
        study,
        steps=options.lens_steps,
        tokens=options.lens_tokens,
        validation=options.lens_validation,
        seed=study.settings["seed"],
    )
    schedule = Schedule(options.lens_steps, options.lens_patience, validation_interval(len(text.steps)))
    training = Training(work.model, text, schedule, bos_of(study, work.info))
    file = "training.safetensors"
    if not folder.missing([file]):
        training.load(load_file(folder.path(file)))
        logger.info("Resuming the training after %d of %d steps.", training.step, len(text.steps))
    _train(work, training, folder, file)
    _save(work, "tuned", training.best)
    loss, first = (sum(losses.values()) / len(losses) for losses in (training.losses, training.first_losses))
    return {
        "steps": training.step,
        "tokens": sum(len(sentence) for step in text.steps[: training.step] for sentence in step),
        "validation_tokens": sum(map(len, text.validation)),
        "validation_divergence": loss,
        "validation_divergence_of_norm": first,
    }


def _train(work: Work, training: Training, folder: ResumableFolder, file: str) -> None:
    saved, steps = time.perf_counter(), len(training.text.steps)

    def save() -> None:
        with folder.writing(file) as path:
            save_file(training.state(), path)

    with delayed_interrupt() as interrupted:

        def after_step() -> None:
            nonlocal saved
            mean = sum(training.losses.values()) / len(training.losses)
            work.progress(
                Progress("tuned lens", training.step, steps, unit="steps", detail=f"divergence {mean:.3f} nats")
            )
            if interrupted() or time.perf_counter() - saved > _SAVE_EVERY:
                save()
                saved = time.perf_counter()
            if interrupted():
                logger.warning("Stopped after %d steps. Run the same command to resume.", training.step)
                raise KeyboardInterrupt

        training.run(after_step)
    save()


def _estimate_jacobians(work: Work, folder: ResumableFolder) -> dict[str, Any]:
    """Average the Jacobians over sentences of the examples, and save them; returns the entry for study.json."""
    sentences, bos = _example_sentences(work), bos_of(work.study, work.info)
    file, sums, done, saved = "jacobian.safetensors", dict[str, torch.Tensor](), 0, time.perf_counter()
    if not folder.missing([file]):
        sums = load_file(folder.path(file))
        done = int(sums.pop("sentences"))
    for number in range(done, len(sentences)):
        for (of, layer), jacobian in sentence_jacobians(work.model, sentences[number], bos).items():
            name = f"{of}.{layer}"
            sums[name] = jacobian.double().cpu() + sums.get(name, 0)
        work.progress(Progress("jacobian lens", number + 1, len(sentences), unit="sentences"))
        if time.perf_counter() - saved > _SAVE_EVERY or number + 1 == len(sentences):
            with folder.writing(file) as path:
                save_file({**sums, "sentences": torch.tensor(number + 1)}, path)
            saved = time.perf_counter()
    means = {key: (sums[f"{key[0]}.{key[1]}"] / len(sentences)).float() for key in translated_states(work.model)}
    _save(work, "jacobian", {key: Translator(mean, mean.new_zeros(len(mean))) for key, mean in means.items()})
    return {"sentences": len(sentences), "tokens": sum(map(len, sentences))}


def _example_sentences(work: Work) -> list[Array]:
    """The sentences of the first examples in a random order."""
    options, examples = work.options(LensTrainingOptions), _examples(work)
    generator = np.random.default_rng([work.study.settings["seed"], *b"jacobian"])
    numbers = [int(number) for number in generator.permutation(np.unique(examples.sentence))]
    sentences = [examples.tokens[number] for number in numbers if len(examples.tokens[number])]
    return sentences[: options.jacobian_sentences]


def _examples(work: Work) -> Examples:
    return draw_examples(work.study, work.options(LensTrainingOptions).lens_examples, work.study.settings["seed"])


def _save(work: Work, name: str, translators: Any) -> None:
    work.study.make_folder(FOLDER)
    with work.study.replacing(f"{FOLDER}/{name}.safetensors") as path:
        tensors = {key: tensor.cpu() for key, tensor in translator_tensors(translators).items()}
        save_file(tensors, path, {"model": work.info.entry["fingerprint"]})  # two entries would be in any order


def _compare(work: Work, folder: ResumableFolder, learned: list[str]) -> dict[str, list[Any]]:
    """The columns of lenses.parquet."""
    study = work.study
    names = [name for name in lens_names() if not is_learned(name) or name in learned]
    lenses = tuple(ChosenLens(name, study.folder.resolve() if is_learned(name) else None) for name in names)
    batches = batches_of(study, work.info, _examples(work))
    if not batches:
        raise CorpusError("There are no examples to compare the lenses at. Use more held-out text (--held-out FILE).")
    readings = StateReadings(lenses, bos_of(study, work.info))
    digest = "".join(names).encode()
    state = summed(work, folder, "lenses", readings, batches, merge=added, depends=digest)
    layers = list(work.model.predicting_layers)
    values = _value_readings(work, lenses, layers)
    rows = zip(names, distances(work.model, lenses), strict=True)
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMAS["lenses.parquet"].names}
    for number, (name, of_lens) in enumerate(rows):
        for column, layer in enumerate(layers):
            row = {"lens": name, "layer": layer, "distance": of_lens[column], **_means(state, (number, column))}
            for entry, value in {**row, **values[column][number]}.items():
                columns[entry].append(value)
    return columns


def _means(state: dict[str, torch.Tensor], at: tuple[int, int]) -> dict[str, Any]:
    count = int(state["count"])
    low, high = mean_interval(state["divergence"][at], state["divergence_square"][at], count)
    return {
        "examples": count,
        "divergence": float(state["divergence"][at]) / count,
        "divergence_low": float(low),
        "divergence_high": float(high),
        "output_divergence": float(state["output_divergence"][at]) / count,
        "residual_agreement": float(state["same"][at]) / count,
    }


def _value_readings(work: Work, lenses: tuple[ChosenLens, ...], layers: list[int]) -> list[list[dict[str, Any]]]:
    """What every lens reads from the values, by layer; without triggers there is nothing to compare it with."""
    study, memories = work.study, work.info.memories
    if not study.has("triggers"):
        nothing = {"agreement": None, "next_rank": None, "memories": None}
        return [[nothing for _ in lenses] for _ in layers]
    inputs = ((layer, (layer, tokens_after_triggers(study, layer, memories[layer]))) for layer in layers)
    by_layer: dict[int, list[dict[str, Any]]] = {}
    for layer, rows in work.engine.map("lens", ValueReadings(lenses), inputs):
        by_layer[layer] = rows
        work.progress(Progress("values through all lenses", len(by_layer), len(layers), unit="layers"))
    return [by_layer[layer] for layer in layers]
