"""The search for triggers against a plain one: every prefix of every sentence, run and sorted."""

import itertools
import json
from contextlib import ExitStack

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import tiny
from ffscope import read
from ffscope.analysis.sentences import Reading
from ffscope.analysis.triggers import Searching
from ffscope.models.inputs import bos_token
from ffscope.pipeline import triggers

TEXT = "The cat sat. On a mat, it saw the dog! Why? A bird flew by <and> sang [a song] / of old. It was late."
WORDS = TEXT.split()
FAMILIES = [name for name in tiny.TABLE if name != "vit"]  # which reads no text


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Twenty-five documents, made of few words, so that sentences begin alike and lengths recur."""
    generator = torch.Generator().manual_seed(3)
    folder = tmp_path_factory.mktemp("corpus")
    file = folder / "text.jsonl"
    with file.open("w") as out:
        for _ in range(25):
            picks = torch.randint(len(WORDS), (24,), generator=generator).tolist()
            text = " ".join(WORDS[i] for i in picks)
            print(json.dumps({"text": text[:60] + "\n" + text[60:]}), file=out)
    return file


def found(study, name="triggers.parquet"):
    return pq.read_table(study.path(name)).to_pylist()


class Plain:
    """Every searched prefix's coefficients, by one trace a sentence."""

    def __init__(self, model, study, *, bos=True):
        config = model.model.config
        first = bos_token(model.tokenizer) if bos else None
        start = config.decoder_start_token_id if getattr(config, "is_encoder_decoder", False) else None
        rows = [row for row in pq.read_table(study.path("sentences.parquet")).to_pylist() if not row["held_out"]]
        kept = [[[] for _ in model.layer(layer).parts] for layer in range(model.layers)]
        places = []
        with ExitStack() as stack, torch.no_grad():
            for layer, parts in enumerate(kept):
                for part, held in zip(model.layer(layer).parts, parts, strict=True):
                    stack.enter_context(part.tap(lambda _part, given, _past, held=held: held.append(given[0].numpy())))
            for row in rows:
                tokens = row["tokens"]
                given = {"input_ids": tokens if first is None else [first, *tokens]}
                if start is not None:
                    given["decoder_input_ids"] = [start, *tokens]
                model.model(**{name: torch.tensor([ids]) for name, ids in given.items()})
                following = [*tokens[1:], row["next_token"]]
                places += [(row["sentence"], position, token) for position, token in enumerate(following)]
        lengths = [len(row["tokens"]) for row in rows]
        kept = [
            [np.concatenate([one[-n:] for one, n in zip(held, lengths, strict=True)]) for held in parts]
            for parts in kept
        ]
        self.coefficients = [np.concatenate(parts, -1) for parts in kept]  # layer → prefix × memory
        self.places = np.array(places)  # sentence, position, next token of every prefix
        self.number = {(sentence, position): i for i, (sentence, position, _) in enumerate(places)}

    def highest(self, layer, memory, top, *, prefixes="best", sign=1):
        """The coefficients of the first `top`; of each sentence the best prefix only, unless all are wanted."""
        column = sign * self.coefficients[layer][:, memory]
        order = np.lexsort((self.places[:, 1], self.places[:, 0], -column))
        order = order[column[order] > 0]
        if prefixes == "best":
            _, firsts = np.unique(self.places[order, 0], return_index=True)
            order = order[np.sort(firsts)]
        return sign * column[order[:top]]

    def holds(self, rows, top, *, sign=1, prefixes="best"):
        """Assert that rows are the triggers: each rank's coefficient is right, and is that of the prefix it names."""
        by_memory = {key: list(some) for key, some in itertools.groupby(rows, key=lambda r: (r["layer"], r["memory"]))}
        for layer, coefficients in enumerate(self.coefficients):
            for memory in range(coefficients.shape[1]):
                some = by_memory.pop((layer, memory), [])
                got = np.array([row["coefficient"] for row in some])
                expected = self.highest(layer, memory, top, sign=sign, prefixes=prefixes)
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
                assert [row["rank"] for row in some] == list(range(1, len(some) + 1))
                numbers = [self.number[row["sentence"], row["position"]] for row in some]
                assert len(set(numbers)) == len(numbers)
                assert [row["next_token"] for row in some] == self.places[numbers, 2].tolist()
                np.testing.assert_allclose(got, coefficients[numbers, memory], rtol=1e-4, atol=1e-6)
        assert not by_memory


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_as_a_plain_search(name, corpus, tokenizer, tmp_path):
    model = read(tiny.make(name), tokenizer)
    searching = Searching(top=7, negative=True, batch_tokens=100)
    study = triggers(model, Reading(str(corpus), max_tokens=20), tmp_path / "study", searching=searching)
    plain = Plain(model, study)
    plain.holds(found(study), 7)
    plain.holds(found(study, "negative_triggers.parquet"), 7, sign=-1)


def test_all_prefixes(corpus, tokenizer, tmp_path):
    model = read(tiny.make("llama"), tokenizer)
    searching = Searching(top=9, prefixes="all", bos=False)
    study = triggers(model, Reading(str(corpus), max_tokens=20), tmp_path / "study", searching=searching)
    Plain(model, study, bos=False).holds(found(study), 9, prefixes="all")
