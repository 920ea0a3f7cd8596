"""The loss over held-out text, compared with plain transformers over whole sentences."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from ffscope.effects.baseline import Baselines
from ffscope.effects.groups import Group
from ffscope.effects.held_out import HeldOutLoss, held_out_batches, perplexity
from ffscope.models.info import describe
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from plain import DECODER_START, make

BOS = 2


def short_sentences(path):
    """A corpus of sentences of many lengths, most of them below the limit."""
    generator = np.random.default_rng(0)
    words = ["cat", "dog", "bird", "song", "of", "mat", "late", "saw", "sat", "why"]
    rows = []
    for _ in range(120):
        chosen = " ".join(generator.choice(words, size=generator.integers(2, 8)))
        rows.append(json.dumps({"text": f"{chosen.capitalize()}."}))
    path.write_text("\n".join(rows))
    return path


@pytest.fixture(params=["gpt2", "llama", "mixtral", "t5"])
def case(request, tokenizer, tmp_path):
    model = make_memory_model(make(request.param), tokenizer)
    corpus = CorpusOptions(corpus=str(short_sentences(tmp_path / "corpus.jsonl")), max_tokens=30)
    return request.param, model, triggers(model, corpus, tmp_path / "study", search=SearchOptions(top=3))


@torch.no_grad()
def plain_losses(name, model, study):
    """The loss after every held-out prefix, sentence by sentence."""
    table = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", True)]).to_pylist()
    losses = []
    for row in table:
        ids = {"input_ids": torch.tensor([[BOS, *row["tokens"]]])}
        if name in DECODER_START:
            ids["decoder_input_ids"] = torch.tensor([[DECODER_START[name], *row["tokens"]]])
        log_probs = model(**ids).logits[0].log_softmax(-1)
        targets = [*row["tokens"][1:], row["next_token"]]
        losses += [-log_probs[at + 1, token].item() for at, token in enumerate(targets) if token >= 0]
    return losses


def test_the_perplexity_is_that_of_plain_transformers(case):
    name, model, study = case
    batches = held_out_batches(study, describe(model))
    losses = plain_losses(name, model.model, study)
    assert sum(len(batch.targets) for batch in batches) == len(losses) > 30
    padded = [batch for batch in batches if len(np.unique(batch.positions[np.diff(batch.rows, append=-1) != 0])) > 1]
    assert bool(padded) == model.causal  # the last places of rows of different lengths
    assert perplexity(model, batches, BOS) == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)


def test_a_group_is_taken_away_as_an_edit_takes_it_away(case):
    name, model, study = case
    members = [np.zeros(count, dtype=bool) for count in model.memories]
    members[1][[2, 7]] = True
    batches = held_out_batches(study, describe(model))
    state = HeldOutLoss(BOS, (Group("two", tuple(members)),), Baselines())(model, batches)
    with model.edit(zero=["L1.2", "L1.7"]):
        without = plain_losses(name, model.model, study)
    intact = np.array(plain_losses(name, model.model, study))
    assert state["loss"].tolist() == pytest.approx([intact.sum(), sum(without)], rel=1e-5)
    assert state["change_square"][1].item() == pytest.approx(np.square(without - intact).sum(), rel=1e-3)


def test_a_sample_has_whole_sentences_and_about_as_many_prefixes(case):
    _, model, study = case
    whole = sum(len(batch.targets) for batch in held_out_batches(study, describe(model)))
    some = sum(len(batch.targets) for batch in held_out_batches(study, describe(model), whole // 3))
    assert whole // 3 <= some < whole
