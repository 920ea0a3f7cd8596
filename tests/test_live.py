"""The explorer's requests to a loaded model, compared with plain loops over transformers' own passes."""

import copy
import itertools
import json
import logging
import subprocess
import sys
import threading
from dataclasses import asdict, is_dataclass

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import studies
import tiny
from ffscope import InputError, LensError, Memory, MemoryNameError, read
from ffscope.analysis.trace import trace_prediction
from ffscope.cancellation import Stopped
from ffscope.errors import CoefficientError
from ffscope.live import prompt
from ffscope.live.interventions import Interventions, Target
from ffscope.live.model import Live
from ffscope.models.linear_parts import to_residual
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from ffscope.tokens import spelling

TEXT = "The cat sat"
TEXTS = [name for name in tiny.TABLE if name != "vit"]
POST_NORM = [
    "opt post-norm",
    "adaptive_lm post-norm",
    "bloom post-norm residual",
    "bert",
    "roberta",
    "distilbert",
    "bart",
]
PRE_NORM = [name for name in TEXTS if name not in [*POST_NORM, "modernbert"]]
WRITERS = [name for name in TEXTS if name not in ("bert", "roberta", "distilbert", "modernbert")]
CHANGED = Interventions.parse("L0.3,L1.2", "L0.4:-2.5", "L1.7:1.5")
EDIT = {"zero": ["L0.3", "L1.2"], "scale": {"L0.4": -2.5}, "set": {"L1.7": 1.5}}


def live_of(name, tokenizer, **options):
    return Live(make_memory_model(tiny.make(name), tokenizer), **{"bos": True, **options})


def is_pair(model):
    return getattr(model.model.config, "is_encoder_decoder", False)


def inputs_of(model, text, *, bos=True):
    """The model's keyword arguments, made by hand; in an encoder–decoder both stacks hold the text."""
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    inputs = {"input_ids": torch.tensor([[2, *ids] if bos else ids])}
    if is_pair(model):
        inputs["decoder_input_ids"] = torch.tensor([[model.model.config.decoder_start_token_id, *ids]])
    return inputs


def first_predicting(model):
    return 3 if is_pair(model) else 0  # tiny encoders have three layers


def plain(result):
    """A result as plain JSON, without NaN or infinity."""
    whole = [
        asdict(item) if is_dataclass(item) else item for item in (result if isinstance(result, list) else [result])
    ]
    assert json.loads(json.dumps(whole, allow_nan=False)) is not None
    return whole


# --- interventions ---


def test_interventions_round_trip_through_a_link():
    interventions = Interventions.parse("L4.2,L3.17,L7", "L3.1:2,L0.5:-1e-3", "L9.9: 0.25,L8:1", "3, -1,0,3")
    assert interventions.zero == (Target(3, 17), Target(4, 2), Target(7))
    assert interventions.link() == {
        "zero": "L3.17,L4.2,L7",
        "scale": "L0.5:-0.001,L3.1:2",
        "set": "L8:1,L9.9:0.25",
        "positions": "-1,0,3",
    }
    assert Interventions.parse(**interventions.link()) == interventions
    assert interventions.any
    assert not Interventions.parse("", "", " ").any
    assert Interventions.parse(set="L0.0:-0").link()["set"] == "L0.0:0"
    small = Interventions.parse(scale="L0.1:1e-07,L0.2:1000000,L0.3:.1,L0.4:5.")
    assert Interventions.parse(**small.link()) == small


@pytest.mark.parametrize(
    ("zero", "scale", "set", "error", "sentence"),
    [
        ("L3.1,", "", "", MemoryNameError, "'' is not a memory's name"),
        ("3.1", "", "", MemoryNameError, "Did you mean 'L3.1'?"),
        ("L3,L3.1", "", "", InputError, "L3.1 is changed twice, once with its whole layer L3. Name one of the two."),
        ("L3", "L3:2", "", InputError, "L3 is changed twice"),
        ("", "L3.1", "", InputError, "Expected a memory and a number to scale, such as 'L3.1:2'; found 'L3.1'."),
        ("", "", "L3.1:x", InputError, "Expected a memory and a number to set, such as 'L3.1:2'; found 'L3.1:x'."),
        ("", "L3.1:nan", "", InputError, "Expected a memory and a number to scale"),
        ("", "L3.1:1_0", "", InputError, "Expected a memory and a number to scale"),
        ("", "L3.1:1e999", "", InputError, "Expected a number from -1000000 to 1000000 for L3.1, found inf."),
        ("", "", "L3.1:-1000001", InputError, "Expected a number from -1000000 to 1000000 for L3.1, found -1000001.0."),
        ("L3.1", "L3.1:2", "", InputError, "L3.1 is changed twice. Name it once, under zero, scale or set."),
        ("L3.1,L3.1", "", "", InputError, "L3.1 is changed twice"),
        (",".join(f"L0.{i}" for i in range(201)), "", "", InputError, "at most 200 interventions, found 201"),
        (
            ",".join(f"L0.{i}" for i in range(150)),
            ",".join(f"L1.{i}:2" for i in range(51)),
            "",
            InputError,
            "at most 200 interventions, found 201. Remove some of them.",
        ),
    ],
)
def test_a_malformed_link_is_refused(zero, scale, set, error, sentence):
    with pytest.raises(error) as raised:
        Interventions.parse(zero, scale, set)
    assert sentence in str(raised.value)


def test_interventions_made_in_python_are_checked_too():
    with pytest.raises(InputError, match="found nan"):
        Interventions(scale=((Target(0, 1), float("nan")),))


def test_links_are_read_without_torch():
    code = """
import sys
for name in ("torch", "transformers", "numpy"): sys.modules[name] = None
import ffscope.live.interventions, ffscope.cancellation
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# --- about, spelling ---


def test_about(tokenizer):
    live = live_of("llama", tokenizer, tokens=1000, new_tokens=7)
    assert plain(live.about()) == [
        {
            "model": "llama",
            "family": "llama",
            "device": "cpu",
            "dtype": "float32",
            "layers": 3,
            "memories": [22, 22, 22],
            "can_generate": True,
            "causal": True,
            "lens": "norm",
            "bos": True,
            "tokens": 41,  # what the model takes
            "new_tokens": 7,
        }
    ]
    assert live.spell([4, 5, 2]) == ["␣", "a", "<s>"]


@pytest.mark.parametrize("name", tiny.sweep(tiny.TABLE))
def test_about_describes_every_model(name, tokenizer):
    about = live_of(name, None if name == "vit" else tokenizer).about()
    assert about.can_generate == (name in WRITERS)
    assert (about.lens is None) == (name == "vit")


def test_an_unknown_lens_is_refused(tokenizer):
    with pytest.raises(LensError, match="There is no lens 'best'"):
        live_of("llama", tokenizer, lens="best")


# --- coefficients ---


@pytest.mark.parametrize(
    ("name", "bos"), [*tiny.sweep(TEXTS, True), *((name, False) for name in ("gpt2", "t5", "bart", "olmoe"))]
)
def test_coefficients_are_those_of_one_trace_a_sentence(name, bos, tokenizer):
    live = live_of(name, tokenizer, bos=bos)
    words = ["The cat", "Hi", "dog", "x", "TheCats"]
    sentences = [tokenizer.encode(word, add_special_tokens=False) for word in words]
    traces = [live.model.trace(inputs_of(live.model, word, bos=bos)) for word in words]
    for memory in (Memory(0, 5), Memory(live.model.layers - 1, live.model.memories[-1] - 1)):
        coefficients = plain(live.coefficients(memory, [*sentences, []]))
        for sentence, trace, per_token in zip(sentences, traces, coefficients, strict=False):
            expected = trace.coefficients[memory.layer][0, -len(sentence) :, memory.memory].tolist()
            assert per_token == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert coefficients[-1] == []
        typed = live.text_coefficients(memory, words[0])
        assert typed.coefficients == pytest.approx(coefficients[0], rel=1e-4, abs=1e-5)
        assert "".join(typed.tokens) == "The␣cat"


CAUSAL = [name for name in WRITERS if not name.startswith(("bart", "t5"))]


def of_many_lengths(count):
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(5, 60, (length,), generator=generator).tolist() for length in range(1, count + 1)]


def count_passes(live, monkeypatch):
    """The shape of the ids of every pass of the model."""
    shapes, forward = [], live.model.forward
    monkeypatch.setattr(
        live.model, "forward", lambda inputs: (shapes.append(tuple(inputs["input_ids"].shape)), forward(inputs))[1]
    )
    return shapes


@pytest.mark.parametrize("name", tiny.sweep(CAUSAL))
def test_sentences_of_many_lengths_are_one_pass_of_a_causal_model(name, tokenizer, monkeypatch):
    live = live_of(name, tokenizer)
    assert live.model.causal
    sentences = of_many_lengths(15)
    memory = Memory(live.model.layers - 1, live.model.memories[-1] - 1)
    shapes = count_passes(live, monkeypatch)
    padded = live.coefficients(memory, [*sentences[::-1], []])
    assert shapes == [(15, 16)]  # BOS included
    monkeypatch.setattr(prompt, "padded_batches", prompt.one_length_batches)
    plain = live.coefficients(memory, [*sentences[::-1], []])
    assert len(shapes) == 1 + 15
    assert [len(row) for row in padded] == [*range(15, 0, -1), 0]
    for padded_row, plain_row in zip(padded, plain, strict=True):
        assert padded_row == pytest.approx(plain_row, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_a_bidirectional_model_is_never_padded(name, tokenizer, monkeypatch):
    live = live_of(name, tokenizer)
    assert not live.model.causal
    shapes = count_passes(live, monkeypatch)
    live.coefficients(Memory(0, 5), of_many_lengths(6))
    assert len(shapes) == 6


def test_padded_batches_take_the_least_time():
    def time_of(batches):
        return sum(prompt._PASS + len(batch) * max(batch) for batch in batches)

    for lengths in ([3, 40, 41, 90, 8, 200, 9, 35], [5] * 8, list(range(20, 60, 5))):
        ordered = sorted(lengths)
        every = [
            np.split(np.array(ordered), cuts)
            for count in range(8)
            for cuts in itertools.combinations(range(1, 8), count)
        ]
        batches = prompt.padded_batches(np.array(lengths))
        assert sorted(np.concatenate(batches).tolist()) == list(range(8))
        assert time_of([np.array(lengths)[batch] for batch in batches]) == min(map(time_of, every))


def test_batches_are_not_larger_than_memory_allows():
    lengths = np.array([300, *[10] * 14, 12, 4000, 4000, 5000])
    batches = prompt.padded_batches(lengths)
    assert [lengths[batch].max() for batch in batches] == [12, 300, 4000, 4000, 5000]
    assert prompt.padded_batches(np.array([], dtype=np.int64)) == []


@pytest.mark.parametrize("name", ["llama", "opt", "qwen3_moe", "t5", "bert"])
def test_coefficients_are_those_of_a_study(name, tokenizer, tmp_path):
    model = read(tiny.make(name), tokenizer)
    corpus = studies.write_corpus(tmp_path / "corpus.jsonl", documents=10)
    study = triggers(model, CorpusOptions(str(corpus), max_tokens=30), tmp_path / "study", search=SearchOptions(top=4))
    tokens = {row["sentence"]: row["tokens"] for row in pq.read_table(study.path("sentences.parquet")).to_pylist()}
    rows = pq.read_table(study.path("triggers.parquet")).to_pylist()
    live = Live(model, bos=study.settings["bos"])
    for memory in {(row["layer"], row["memory"]) for row in rows if row["memory"] in (1, 8)}:
        mine = [row for row in rows if (row["layer"], row["memory"]) == memory]
        coefficients = live.coefficients(Memory(*memory), [tokens[row["sentence"]] for row in mine])
        for row, per_token in zip(mine, coefficients, strict=True):
            assert per_token[row["position"]] == pytest.approx(row["coefficient"], rel=1e-4)
            assert max(per_token) == pytest.approx(row["coefficient"], rel=1e-4)


def test_the_forward_pass_stops_at_the_memorys_layer(tokenizer):
    live = live_of("llama", tokenizer)
    assert live.model.causal  # determined once, by separate passes
    ran = []
    for number, block in enumerate(live.model.model.model.layers):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    live.coefficients(Memory(1, 0), [[5, 6, 7]])
    assert ran == [0]


def test_unknown_memories_and_invalid_texts_are_refused(tokenizer):
    live = live_of("llama", tokenizer, tokens=6)
    with pytest.raises(MemoryNameError, match="There is no memory L0.22. Layer 0 has memories 0 to 21."):
        live.coefficients(Memory(0, 22), [[5]])
    with pytest.raises(InputError, match="Token id 67 is not in the vocabulary"):
        live.coefficients(Memory(0, 2), [[67]])
    with pytest.raises(InputError, match="The text has no tokens. Expected at least one."):
        live.text_coefficients(Memory(0, 2), "")
    with pytest.raises(InputError, match="The text has 7 tokens, BOS included; expected at most 6. Shorten it."):
        live.prompt("abcdef")
    with pytest.raises(InputError, match="half a character"):
        live.prompt("a\ud800")
    with pytest.raises(InputError, match="There is no position 6: the text has 6 tokens, BOS included"):
        live.prompt("abcde", position=6)
    with pytest.raises(InputError, match="A grid of 'input' is not available. Choose one of: residual, output."):
        live.prompt("abc", of="input")
    with pytest.raises(InputError, match="Expected 1 to 1000 memories, found 0."):
        live.prompt("abc", memories=0)
    with pytest.raises(MemoryNameError, match="There is no layer 9"):
        live.prompt("abc", interventions=Interventions.parse("L9.1"))


# --- similar ---


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "qwen3_moe", "t5", "granite", "vit"])
def test_similar_memories_have_the_highest_cosines(name, tokenizer, monkeypatch):
    monkeypatch.setattr("ffscope.live.why._ROWS", 7)
    live = live_of(name, None if name == "vit" else tokenizer)
    layers = [live.model.layer(i) for i in range(live.model.layers)]
    rows = torch.cat([to_residual(layer, layer.values()) for layer in layers])
    names = [f"L{i}.{j}" for i, count in enumerate(live.model.memories) for j in range(count)]
    cosines = torch.nn.functional.cosine_similarity(rows[names.index("L1.3")], rows)
    order = [i for i in cosines.argsort(descending=True).tolist() if names[i] != "L1.3"][:10]
    similar = live.similar(Memory(1, 3))
    plain(similar)
    assert [match.memory for match in similar] == [names[i] for i in order]
    assert [match.cosine for match in similar] == pytest.approx(cosines[order].tolist(), abs=1e-5)


def test_a_zero_value_has_no_similar_memories(tokenizer):
    live = live_of("llama", tokenizer)
    with torch.no_grad():
        live.model.model.model.layers[0].mlp.down_proj.weight[:, 4] = 0
    assert live.similar(Memory(0, 4)) == []
    assert len(live.similar(Memory(0, 3), count=1000)) == 65
    plain(live.similar(Memory(0, 3), count=1000))


# --- prompt ---


@pytest.mark.parametrize(
    ("name", "of"), [*((name, "output") for name in TEXTS), *((name, "residual") for name in ("gptj", "bert", "t5"))]
)
def test_the_grid_is_what_a_plain_loop_reads(name, of, tokenizer, monkeypatch):
    live = live_of(name, tokenizer, lens="raw" if name == "mistral" else "norm")
    model = live.model
    lens = model.lens(live.lens)
    monkeypatch.setattr(type(lens), "chunk", 4)
    reading = live.prompt(TEXT, interventions=CHANGED, of=of)
    plain(reading)
    with model.edit(**EDIT):
        trace = model.trace(inputs_of(model, TEXT))
    first = first_predicting(model)
    assert reading.grid.layers == list(range(first, model.layers))
    for row, layer in enumerate(reading.grid.layers):
        for p in range(len(reading.ids)):
            logits = lens.states(getattr(trace, of)[layer][0, p], layer)
            probabilities = logits.softmax(-1)
            final = int(trace.logits[0, p].argmax())
            best = logits.topk(10).indices.tolist()
            assert reading.grid.top[row][p] == best
            assert reading.grid.probability[row][p] == pytest.approx(probabilities[best].tolist(), rel=1e-3, abs=1e-6)
            assert reading.grid.rank[row][p] == 1 + int((logits > logits[final]).sum())
            entropy = -(probabilities * probabilities.log2()).nansum().item()
            assert reading.grid.entropy[row][p] == pytest.approx(entropy, rel=1e-3, abs=1e-5)
    if of == "output" and live.lens == "norm":
        assert set(reading.grid.rank[-1]) == {1}
    assert reading.spellings.keys() >= {str(id) for row in reading.grid.top for cell in row for id in cell}
    assert all(reading.spellings[str(id)] == token for id, token in zip(reading.ids, reading.tokens, strict=True))


@pytest.mark.parametrize("name", tiny.sweep(TEXTS))
def test_the_distribution_is_the_models_own_before_and_after(name, tokenizer):
    live = live_of(name, tokenizer)
    inputs = inputs_of(live.model, TEXT)
    traced = live.model.trace(inputs)
    before = traced.logits[0, 4].softmax(-1)
    with live.model.edit(**EDIT):
        after = live.model.trace(inputs).logits[0, 4].softmax(-1)
    reading = live.prompt(TEXT, interventions=CHANGED, position=4)
    ids = [choice.id for choice in reading.distribution]
    assert set(ids) == {*before.topk(20).indices.tolist(), *after.topk(20).indices.tolist()}
    assert [choice.before for choice in reading.distribution] == pytest.approx(before[ids].tolist(), rel=1e-3)
    assert [choice.after for choice in reading.distribution] == pytest.approx(after[ids].tolist(), rel=1e-3)
    assert [choice.after_rank for choice in reading.distribution] == [1 + int((after > after[id]).sum()) for id in ids]
    assert [choice.before_rank for choice in reading.distribution] == [
        1 + int((before > before[id]).sum()) for id in ids
    ]
    assert ids == sorted(ids, key=lambda id: -after[id])
    assert [
        (intervention.name, intervention.change, intervention.number) for intervention in reading.interventions
    ] == [
        ("L0.3", "zero", None),
        ("L1.2", "zero", None),
        ("L0.4", "scale", -2.5),
        ("L1.7", "set", 1.5),
    ]
    for intervention in reading.interventions:
        memory = Memory.parse(intervention.name)
        assert intervention.coefficient == pytest.approx(
            traced.coefficients[memory.layer][0, 4, memory.memory].item(), rel=1e-4
        )


def test_without_interventions_there_is_no_after(tokenizer):
    live = live_of("llama", tokenizer)
    reading = live.prompt(TEXT)
    plain(reading)
    assert reading.position == len(reading.ids) - 1
    assert reading.tokens[0] == "<s>"
    assert reading.interventions == []
    assert len(reading.distribution) == 20
    assert [choice.before_rank for choice in reading.distribution] == list(range(1, 21))
    assert {choice.after for choice in reading.distribution} == {None}
    assert reading.steps == trace_prediction(live.model, TEXT, memories=5).steps
    assert live.prompt(TEXT, position=3, memories=2, lens="raw").steps == (
        trace_prediction(live.model, TEXT, position=3, memories=2, lens="raw").steps
    )


def test_steps_are_of_the_run_with_the_interventions(tokenizer):
    live = live_of("gpt2", tokenizer)
    reading = live.prompt(TEXT, interventions=CHANGED, memories=22)
    with live.model.edit(**EDIT):
        assert reading.steps == trace_prediction(live.model, TEXT, memories=22).steps
    coefficients = {memory.memory: memory.coefficient for step in reading.steps for memory in step.memories}
    assert coefficients["L0.3"] == 0
    assert coefficients["L1.7"] == 1.5


WIDE = {"zero": ["L0.3"], "scale": {"L1": -2.5}, "set": {"L0.7": 1.5}}


@pytest.mark.parametrize("name", tiny.sweep(TEXTS))
@pytest.mark.parametrize("positions", ["", "-1", "0,3,-2"])
def test_whole_layers_and_positions_are_those_of_an_edit(name, positions, tokenizer):
    live = live_of(name, tokenizer)
    interventions = Interventions.parse("L0.3", "L1:-2.5", "L0.7:1.5", positions)
    at = [int(position) for position in positions.split(",")] if positions else None
    with live.model.edit(**WIDE, positions=at):
        logits = live.model.trace(inputs_of(live.model, TEXT)).logits[0, -1].float()
    expected = logits.softmax(-1)
    reading = live.prompt(TEXT, interventions=interventions)
    plain(reading)
    ids = [choice.id for choice in reading.distribution]
    assert [choice.after for choice in reading.distribution] == pytest.approx(
        expected[ids].tolist(), rel=1e-3, abs=1e-7
    )
    assert reading.positions == (at and sorted(position % len(reading.ids) for position in at))
    assert {intervention.name: intervention.coefficient is None for intervention in reading.interventions}["L1"]
    if name in PRE_NORM:
        why = live.why(TEXT, interventions=interventions, a="a", b="b")
        assert why.difference == pytest.approx((logits[why.a.id] - logits[why.b.id]).item(), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_moe", "bloom"])
@pytest.mark.parametrize("positions", ["-1", "0,3,-2"])
def test_text_is_generated_with_interventions_at_positions_of_the_prompt(name, positions, tokenizer):
    live = live_of(name, tokenizer)
    length = len(TEXT) + 1
    at = [int(position) % length for position in positions.split(",")]
    generated = live.generate(
        TEXT, interventions=Interventions.parse("L0.3", "L1:-2.5", "L0.7:1.5", positions), new_tokens=8
    )
    with live.model.edit(**WIDE, positions=at):
        assert generated.after == greedy(live.model, TEXT, 8)
    assert generated.before == greedy(live.model, TEXT, 8)


def test_unknown_positions_are_refused(tokenizer):
    live = live_of("llama", tokenizer)
    wrong = Interventions.parse("L0", positions="40")
    for ask in (live.prompt, live.generate, live.memories):
        with pytest.raises(InputError, match="There is no position 40: the text has 12 tokens"):
            ask(TEXT, interventions=wrong)
    with pytest.raises(InputError, match="Expected positions as integers, such as 0,3 or -1"):
        Interventions.parse("L0", positions="1-3")
    with pytest.raises(InputError, match="at most 200 positions, found 201"):
        Interventions(positions=tuple(range(201)))
    pair = live_of("t5", tokenizer)
    with pytest.raises(
        InputError, match="positions of the text do not exist in the new text. Intervene at all positions"
    ):
        pair.generate(TEXT, interventions=Interventions.parse("L0", positions="1"), new_tokens=3)


def test_interventions_do_not_leak(tokenizer):
    live = live_of("mixtral", tokenizer)
    fresh = live.prompt(TEXT)
    changed = live.prompt(TEXT, interventions=CHANGED)
    live.why(TEXT, interventions=CHANGED, a="a", b="b")
    live.generate(TEXT, interventions=CHANGED, new_tokens=3)
    assert live.prompt(TEXT) == fresh
    assert live.prompt(TEXT, interventions=CHANGED) == changed != fresh
    assert [choice.before for choice in changed.distribution[:1]] != [changed.distribution[0].after]


def test_a_decoder_beside_an_encoder_without_bos(tokenizer):
    live = live_of("t5", tokenizer, bos=False)
    first = live.prompt("ab", interventions=Interventions.parse("L0.1,L4.1"), position=0)
    assert first.tokens == ["<unk>", "a", "b"]  # its start token, and the text
    assert first.interventions[0].coefficient is None  # the encoder has no token there
    assert first.interventions[1].coefficient is not None
    plain(first)


def test_numbers_that_are_not_finite_are_refused(tokenizer):
    live = live_of("llama", tokenizer)
    live.model.model.half()
    many = Interventions(set=tuple((Target(0, i), 1e6) for i in range(22)))
    for ask in (live.prompt, lambda *args, **kwargs: live.why(*args, a="a", b="b", **kwargs)):
        with pytest.raises(CoefficientError, match="finite numbers in layer 0.*Intervene with smaller numbers"):
            ask(TEXT, interventions=many)


def test_models_that_cannot_be_read(tokenizer):
    blind = live_of("vit", None)
    with pytest.raises(InputError, match="Expected pixel_values for this model, found text"):
        blind.prompt(TEXT)
    with pytest.raises(InputError, match="has no tokenizer"):
        live_of("llama", None).prompt(TEXT)
    headless = make_memory_model(tiny.make("gpt2").transformer, tokenizer)
    for ask in (Live(headless, bos=True).prompt, lambda text: Live(headless, bos=True).why(text, a="a", b="b")):
        with pytest.raises(LensError, match="has no unembedding"):
            ask(TEXT)


# --- why ---


def parts(why):
    return why.start + why.bias + sum(layer.ff + layer.rest for layer in why.layers)


@pytest.mark.parametrize("name", tiny.sweep(PRE_NORM))
def test_the_parts_add_up_to_the_difference(name, tokenizer):
    live = live_of(name, tokenizer)
    for position in (-1, 2):
        why = live.why(TEXT, interventions=CHANGED, a="a", b="#9", position=position)
        plain(why)
        with live.model.edit(**EDIT):
            logits = live.model.trace(inputs_of(live.model, TEXT)).logits[0, position]
        expected = (logits[why.a.id] - logits[why.b.id]).item()
        assert why.difference == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert parts(why) == pytest.approx(why.total, rel=1e-3, abs=1e-4)
        if why.note is None:
            assert why.total == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["mistral", "gemma", "gemma2", "gemma3", "olmo2", "olmoe", "qwen3_moe", "t5", "phi3"])
def test_a_layers_memories_add_up_to_its_update(name, tokenizer):
    live = live_of(name, tokenizer)
    why = live.why(TEXT, a="a", b="b", count=1000)
    pushes = {}
    for row in why.memories:
        layer = Memory.parse(row.memory).layer
        pushes[layer] = pushes.get(layer, 0) + row.push
    assert [pushes[layer.layer] for layer in why.layers] == pytest.approx(
        [layer.ff for layer in why.layers], rel=1e-3, abs=1e-5
    )


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt"])
def test_pushes_are_what_the_weights_say(name, tokenizer):
    live = live_of(name, tokenizer)
    own = live.model.model
    why = live.why(TEXT, a="c", b="d", count=1000)
    trace = live.model.trace(TEXT)
    state = trace.output[-1][0, -1]
    norm = {
        "llama": lambda: own.model.norm,
        "gpt2": lambda: own.transformer.ln_f,
        "opt": lambda: own.model.decoder.final_layer_norm,
    }[name]()
    centred = name != "llama"
    size = (state - state.mean() if centred else state).square().mean().add(1e-6 if name == "llama" else 1e-5).sqrt()
    apart = own.lm_head.weight[why.a.id] - own.lm_head.weight[why.b.id]
    for row in why.memories:
        memory = Memory.parse(row.memory)
        value = {
            "llama": lambda i, j: own.model.layers[i].mlp.down_proj.weight[:, j],
            "gpt2": lambda i, j: own.transformer.h[i].mlp.c_proj.weight[j],
            "opt": lambda i, j: own.model.decoder.layers[i].fc2.weight[:, j],
        }[name](*memory)
        m = trace.coefficients[memory.layer][0, -1, memory.memory]
        direction = (value - value.mean() if centred else value) * norm.weight
        assert row.push == pytest.approx((m * (direction @ apart) / size).item(), rel=1e-3, abs=1e-6)
        assert row.coefficient == pytest.approx(m.item(), rel=1e-4, abs=1e-7)
    assert len(why.memories) == 66
    sizes = [abs(row.push) for row in why.memories]
    assert sizes == sorted(sizes, reverse=True)
    assert live.why(TEXT, a="c", b="d", count=4).memories == why.memories[:4]
    # The promoted tokens, given the coefficient's sign, are those of the prompt's steps.
    stepped = {row.memory: row for step in live.prompt(TEXT, memories=22).steps for row in step.memories}
    assert all(row.promotes == stepped[row.memory].promotes for row in why.memories if row.coefficient)


def sizes_of(model, trace, position):
    """|coefficient| × ‖value‖ of every memory, by name, with the values as the layers write them in this run."""
    return {
        f"L{layer}.{i}": (m.abs() * row.norm()).item()
        for layer, coefficients in zip(trace.layers, trace.coefficients, strict=True)
        for i, (m, row) in enumerate(
            zip(coefficients[0, position], to_residual(model.layer(layer), model.values(layer)).float(), strict=True)
        )
    }


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "granite", "qwen3_moe"])
def test_memories_of_all_layers_are_ranked_as_a_plain_loop_ranks_them(name, tokenizer):
    live = live_of(name, tokenizer)
    with live.model.edit(**EDIT):
        trace = live.model.trace(TEXT)
    sizes = sizes_of(live.model, trace, 4)
    everything = sum(sizes.values())
    ranked = live.memories(TEXT, interventions=CHANGED, position=4, by="size", count=1000)
    plain(ranked)
    assert ranked.target.id == trace.logits[0, 4].argmax()
    assert [row.size for row in ranked.memories] == pytest.approx(sorted(sizes.values(), reverse=True), rel=1e-3)
    for row in ranked.memories:
        layer = row.memory.split(".")[0]
        whole = sum(size for memory, size in sizes.items() if memory.startswith(f"{layer}."))
        assert row.size == pytest.approx(sizes[row.memory], rel=1e-3, abs=1e-7)
        assert row.share_of_layer == pytest.approx(row.size / whole, rel=1e-3, abs=1e-9)
        assert row.share_of_all == pytest.approx(row.size / everything, rel=1e-3, abs=1e-9)
    by_push = live.memories(TEXT, interventions=CHANGED, position=4, count=1000)
    assert by_push.by == "logit"
    pushes = [abs(row.push) for row in by_push.memories]
    assert pushes == sorted(pushes, reverse=True)
    assert sorted(by_push.memories, key=lambda row: row.memory) == sorted(ranked.memories, key=lambda row: row.memory)
    assert live.memories(TEXT, interventions=CHANGED, position=4, count=3).memories == by_push.memories[:3]


@pytest.mark.parametrize("name", ["llama", "gemma2", "gemma3", "olmo2", "t5", "adaptive_lm"])
def test_pushes_on_a_token_are_what_its_logit_loses_with_the_norm_held(name, tokenizer):
    """A − B of `why` is the difference of the pushes on A and on B."""
    live = live_of(name, tokenizer)
    why = live.why(TEXT, a="a", b="b", count=1000)
    a, b = (
        {row.memory: row.push for row in live.memories(TEXT, target=token, count=1000).memories} for token in ("a", "b")
    )
    assert {row.memory: row.push for row in why.memories} == {
        memory: pytest.approx(a[memory] - b[memory], rel=1e-3, abs=1e-5) for memory in a
    }
    assert live.memories(TEXT, target="#9").target.id == 9


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_the_pushes_on_a_token_are_those_of_the_weights(name, tokenizer):
    live = live_of(name, tokenizer)
    own, trace = live.model.model, live.model.trace(TEXT)
    state = trace.output[-1][0, -1]
    norm = own.model.norm if name == "llama" else own.transformer.ln_f
    centred = (lambda v: v) if name == "llama" else (lambda v: v - v.mean())
    size = centred(state).square().mean().add(1e-6 if name == "llama" else 1e-5).sqrt()
    ranked = live.memories(TEXT, count=1000)
    unembedding = own.lm_head.weight[ranked.target.id]
    for row in ranked.memories:
        memory = Memory.parse(row.memory)
        value = live.model.values(memory.layer)[memory.memory]
        expected = row.coefficient * ((centred(value) * norm.weight) @ unembedding) / size
        assert row.push == pytest.approx(expected.item(), rel=1e-3, abs=1e-6)
    assert ranked.logit == pytest.approx(trace.logits[0, -1, ranked.target.id].item(), rel=1e-3)


@pytest.mark.parametrize("name", tiny.sweep(TEXTS))
def test_every_model_ranks_its_memories(name, tokenizer):
    live = live_of(name, tokenizer)
    ranked = live.memories(TEXT, count=5)
    plain(ranked)
    assert len(ranked.memories) == 5
    assert ranked.by == ("logit" if name in PRE_NORM else "size")
    assert all((row.push is None) == (ranked.by == "size") for row in ranked.memories)
    if ranked.by == "size":
        assert "no memory pushes the logits directly" in ranked.note
        with pytest.raises(LensError, match="no memory pushes the logits directly"):
            live.memories(TEXT, by="logit")


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_with_a_negative_coefficient_the_opposite_of_the_value_is_promoted(name, tokenizer):
    live = live_of(name, tokenizer)
    lens = live.model.lens("norm")
    rows = [row for step in live.prompt(TEXT, memories=20).steps for row in step.memories]
    rows += [*live.memories(TEXT, count=60).memories, *live.why(TEXT, a="a", b="b", count=60).memories]
    negative = [row for row in rows if row.coefficient < 0]
    assert len(negative) > 20
    for row in rows:
        memory = Memory.parse(row.memory)
        logits = lens.values(memory.layer, [memory.memory])[0] * (-1 if row.coefficient < 0 else 1)
        assert row.promotes == [spelling(tokenizer, token) for token in logits.topk(3).indices.tolist()]


def test_a_logit_cap_is_removed_and_noted(tokenizer):
    live = live_of("gemma2", tokenizer)
    why = live.why(TEXT, a="a", b="b")
    assert why.note == "This model caps its logits at ±7; the pushes add up to the difference before the cap."
    logits = live.model.trace(TEXT).logits[0, -1].double()
    free = 7 * torch.atanh(logits / 7)
    assert why.total == pytest.approx((free[why.a.id] - free[why.b.id]).item(), rel=1e-2)
    assert why.difference != pytest.approx(why.total, rel=1e-3)


@pytest.mark.parametrize("name", POST_NORM)
def test_norms_between_blocks_leave_no_direct_pushes(name, tokenizer):
    with pytest.raises(LensError, match="has a norm between its blocks, so no memory pushes the logits directly"):
        live_of(name, tokenizer).why(TEXT, a="a", b="b")


def test_a_head_with_an_activation_leaves_no_direct_pushes(tokenizer):
    with pytest.raises(LensError, match="Expected only a norm and a projection"):
        live_of("modernbert", tokenizer).why(TEXT, a="a", b="b")


def test_in_low_precision(tokenizer):
    model = tiny.make("olmo2").half()
    live = Live(make_memory_model(model, tokenizer), bos=True)
    why = live.why(TEXT, a="a", b="b")
    largest = max(abs(layer.ff) + abs(layer.rest) for layer in why.layers)
    assert abs(parts(why) - why.difference) < 0.05 * largest
    plain(live.prompt(TEXT, interventions=CHANGED))
    assert live.about().dtype == "float16"


@pytest.fixture
def words():
    """A tokenizer of words and pieces, with a space before some of them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [
        "<unk>",
        "<pad>",
        "<s>",
        "</s>",
        "Ġ",
        "P",
        "a",
        "r",
        "i",
        "s",
        "ar",
        "is",
        "aris",
        "Paris",
        "ĠParis",
        "Ġis",
    ]
    merges = [("a", "r"), ("i", "s"), ("ar", "is"), ("P", "aris"), ("Ġ", "Paris"), ("Ġ", "is")]
    tokenizer = Tokenizer(
        models.BPE(vocab={token: i for i, token in enumerate(pieces)}, merges=merges, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


def test_tokens_are_named_by_text_or_id(words):
    live = live_of("llama", words)
    why = live.why("Paris is", a="Paris", b=" Paris")
    assert (why.a.id, why.a.token, why.b.id, why.b.token) == (13, "Paris", 14, "␣Paris")
    assert live.why("Paris is", a="#14", b="<unk>").a.token == "␣Paris"
    assert live.why("Paris is", a="␣Paris", b="Paris").a.id == 14
    with pytest.raises(InputError, match="'sis' is not one token.*Its tokens are: s is. Choose one of them"):
        live.why("Paris", a="sis", b="is")
    with pytest.raises(InputError, match="'Q' is not one token.*Its tokens are: <unk>."):
        live.why("Paris", a="Q", b="is")
    with pytest.raises(InputError, match="There is no token #67. This model has tokens #0 to #66."):
        live.why("Paris", a="#67", b="is")
    with pytest.raises(InputError, match="Expected a token, found nothing"):
        live.why("Paris", a="", b="is")
    with pytest.raises(InputError, match="Both tokens are 'is'"):
        live.why("Paris", a="is", b="is")
    with pytest.raises(InputError, match="half a character"):
        live.why("Paris", a="\ud800", b="is")
    with pytest.raises(LensError, match="Expected the norm lens, .*; found 'raw'"):
        live.why("Paris", a="is", b="Paris", lens="raw")


def test_a_space_is_put_in_front_where_the_text_alone_is_no_token():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.BPE(vocab={"<s>": 0, "a": 1, "b": 2, " ": 3, " a": 4, " ab": 5}, merges=[(" ", "a"), (" a", "b")])
    )
    live = live_of("llama", PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>"))
    why = live.why("ab", a="ab", b="a")
    assert (why.a.asked, why.a.id, why.a.token) == ("ab", 5, "␣ab")
    assert why.b.id == 1


def test_a_spelling_that_several_tokens_share_is_refused_with_their_ids():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.BPE(vocab={"<s>": 0, "a": 1, "b": 2, " ": 3, " a": 4, "␣a": 5, "␣": 6}, merges=[(" ", "a")])
    )
    live = live_of("llama", PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>"))
    for text in ("␣a", " a"):
        with pytest.raises(InputError, match="'␣a' is the spelling of 2 tokens: #4, #5. Name one by its id."):
            live.why("ab", a=text, b="b")
    assert live.why("ab", a="#5", b="b").a.token == "␣a"


# --- generate ---


@torch.no_grad()
def greedy(model, text, count, *, ends=(3,)):
    """One full pass per token, without a cache."""
    ids = torch.tensor([[2, *model.tokenizer.encode(text, add_special_tokens=False)]])
    sequence = torch.full((1, 1), model.model.config.decoder_start_token_id) if is_pair(model) else ids
    start = sequence.shape[1]
    for _ in range(count):
        inputs = {"input_ids": ids, "decoder_input_ids": sequence} if is_pair(model) else {"input_ids": sequence}
        sequence = torch.cat([sequence, model.model(**inputs, use_cache=False).logits[:, -1:].argmax(-1)], 1)
        if sequence[0, -1] in ends:
            break
    return [spelling(model.tokenizer, token) for token in sequence[0, start:].tolist()]


def hostile(model):
    """A model whose own settings ask for everything but greedy text."""
    config = model.generation_config
    config.do_sample, config.temperature, config.top_k, config.top_p = True, 5.0, 2, 0.3
    config.max_length, config.min_length, config.num_beams, config.num_return_sequences = 3, 30, 3, 2
    config.repetition_penalty, config.no_repeat_ngram_size, config.max_time = 9.0, 1, 1e-9
    config.forced_bos_token_id, config.forced_eos_token_id, config.suppress_tokens = 7, 8, list(range(20))
    config.stop_strings, config.cache_implementation, config.return_dict_in_generate = ["a"], "static", True
    config.bad_words_ids = [[i] for i in range(20, 40)]
    return model


@pytest.mark.parametrize("name", tiny.sweep(WRITERS))
def test_generated_text_is_greedy(name, tokenizer, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)  # so that caplog sees its warnings
    live = Live(make_memory_model(hostile(tiny.make(name)), tokenizer), bos=True)
    config = copy.deepcopy(live.model.model.generation_config.to_dict())
    generated = live.generate(TEXT, interventions=CHANGED, new_tokens=12)
    plain(generated)
    assert generated.before == greedy(live.model, TEXT, 12)
    with live.model.edit(**EDIT):
        assert generated.after == greedy(live.model, TEXT, 12)
    assert live.generate(TEXT, new_tokens=12).after is None
    assert live.model.model.generation_config.to_dict() == config
    assert not [record for record in caplog.records if record.name.startswith("transformers.generation")]


@pytest.mark.parametrize("listed", [False, True])
def test_text_ends_at_eos(listed, tokenizer):
    live = live_of("llama", tokenizer)
    whole = greedy(live.model, TEXT, 12, ends=())
    assert len(set(whole[:5])) > 1
    last = tokenizer.convert_tokens_to_ids(whole[4])
    live.model.model.generation_config.eos_token_id = [60, last] if listed else last
    generated = live.generate(TEXT, new_tokens=12).before
    assert generated == whole[: whole.index(whole[4]) + 1]


def test_invalid_generation_requests_are_refused(tokenizer):
    for name in ("bert", "modernbert"):
        with pytest.raises(InputError, match="ForMaskedLM does not generate text. Expected a language model"):
            live_of(name, tokenizer).generate(TEXT, new_tokens=3)
    with pytest.raises(InputError, match="ViTModel does not generate text"):
        live_of("vit", None).generate(TEXT, new_tokens=3)
    live = live_of("gpt2", tokenizer)
    with pytest.raises(InputError, match="Expected 1 to 100 new tokens, found 101."):
        live.generate(TEXT, new_tokens=101)
    with pytest.raises(InputError, match="30 new tokens after 12, .*this model takes at most 41 in all"):
        live.generate(TEXT, new_tokens=30)
    assert len(live.generate(TEXT, new_tokens=29).before) <= 29
    with pytest.raises(MemoryNameError, match="There is no memory L0.99"):
        live.generate(TEXT, new_tokens=3, interventions=Interventions.parse("L0.99"))


# --- promoters of a token ---


@pytest.mark.parametrize("lens", ["norm", "raw"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "qwen3_moe", "t5", "granite", "opt", "adaptive_lm"])
def test_promoters_are_ranked_as_all_values_read_whole(name, lens, tokenizer, monkeypatch):
    monkeypatch.setattr("ffscope.models.lenses.base._LOGITS", 2**11)  # several chunks a layer
    live = live_of(name, tokenizer, lens=lens)
    reading, token = live.model.lens(lens), 40
    logits = torch.cat([reading.values(layer) for layer in range(live.model.layers)])
    names = [f"L{i}.{j}" for i, count in enumerate(live.model.memories) for j in range(count)]
    above = logits[:, token] - logits.mean(-1)
    order = above.argsort(descending=True, stable=True)[:10].tolist()
    promoters = live.promoters(f"#{token}", count=10)
    plain(promoters)
    assert (promoters.token.id, promoters.memories, promoters.vocabulary) == (token, len(names), logits.shape[1])
    assert [row.memory for row in promoters.rows] == [names[i] for i in order]
    assert [row.logit for row in promoters.rows] == pytest.approx(above[order].tolist(), rel=1e-4, abs=1e-5)
    assert [row.rank for row in promoters.rows] == [int((logits[i] > logits[i, token]).sum()) + 1 for i in order]
    assert [row.probability for row in promoters.rows] == pytest.approx(
        logits[order].softmax(-1)[:, token].tolist(), rel=1e-4
    )
    some = live.promoters(f"#{token}", layers=[1], count=1000)
    assert {row.memory for row in some.rows} == {name for name in names if name.startswith("L1.")}


def test_a_token_without_a_lens_or_a_name_has_no_promoters(tokenizer):
    with pytest.raises(InputError, match="There is no token #99999"):
        live_of("llama", tokenizer).promoters("#99999")
    with pytest.raises(LensError, match="has no unembedding"):
        live_of("vit", None).promoters("#1")


# --- stopping ---


class After:
    """Returns False for the first `times` calls, then True."""

    def __init__(self, times):
        self.allowed, self.calls = times, 0

    def __call__(self):
        self.calls += 1
        return self.calls > self.allowed


@pytest.mark.parametrize(
    "ask",
    [
        lambda live, stop: live.coefficients(Memory(2, 1), [[5, 6], [7]], stop=stop),
        lambda live, stop: live.text_coefficients(Memory(2, 1), TEXT, stop=stop),
        lambda live, stop: live.similar(Memory(2, 1), stop=stop),
        lambda live, stop: live.promoters("#40", stop=stop),
        lambda live, stop: live.prompt(TEXT, interventions=CHANGED, stop=stop),
        lambda live, stop: live.why(TEXT, a="a", b="b", stop=stop),
        lambda live, stop: live.memories(TEXT, stop=stop),
        lambda live, stop: live.memories(TEXT, by="effect", stop=stop),
        lambda live, stop: live.generate(TEXT, new_tokens=10, stop=stop),
    ],
)
def test_every_request_can_be_cancelled(ask, tokenizer):
    live = live_of("llama", tokenizer)
    counted = After(10**9)
    ask(live, counted)
    assert counted.calls >= 3
    for times in range(counted.calls):
        stop = After(times)
        with pytest.raises(Stopped, match="^The request was cancelled.$"):
            ask(live, stop)
        assert stop.calls == times + 1  # not called again
    assert live.prompt(TEXT) == live_of("llama", tokenizer).prompt(TEXT)


def test_generation_stops_between_tokens(tokenizer):
    live = live_of("llama", tokenizer)
    passes = []
    live.model.model.register_forward_pre_hook(lambda *_: passes.append(1))
    with pytest.raises(Stopped):
        live.generate(TEXT, new_tokens=20, stop=lambda: len(passes) > 4)
    assert len(passes) == 5


@pytest.fixture
def often():
    """Switch threads often, to expose races."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often")
def test_requests_from_several_threads_do_not_interfere(tokenizer):
    live = live_of("gemma2", tokenizer)
    expected = [live.prompt(TEXT), live.prompt(TEXT, interventions=CHANGED)]
    generated = live.generate(TEXT, interventions=CHANGED, new_tokens=8)
    failed = []

    def ask(number):
        for _ in range(4):
            interventions = CHANGED if number % 2 else Interventions()
            if live.prompt(TEXT, interventions=interventions) != expected[number % 2]:
                failed.append(number)
            if live.generate(TEXT, interventions=CHANGED, new_tokens=8) != generated:
                failed.append(number)

    def try_asking(number):
        try:
            ask(number)
        except Exception as error:  # a thread's own errors would be lost
            failed.append(error)

    threads = [threading.Thread(target=try_asking, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_real_model(wiki16):
    import ffscope

    live = Live(ffscope.load(wiki16), bos=True)
    reading = live.prompt("The capital of France is", interventions=Interventions.parse("L3.17"))
    plain(reading)
    a, b = (f"#{choice.id}" for choice in reading.distribution[:2])
    why = live.why("The capital of France is", interventions=Interventions.parse("L3.17"), a=a, b=b)
    assert parts(why) == pytest.approx(why.difference, rel=1e-3)
    generated = live.generate("The capital of France is", new_tokens=8).before
    assert generated == greedy_real(live.model, "The capital of France is", 8)


@torch.no_grad()
def greedy_real(model, text, count):
    ids = model.encode(text)["input_ids"]
    for _ in range(count):
        ids = torch.cat([ids, model.model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    return [spelling(model.tokenizer, token) for token in ids[0, -count:].tolist()]
