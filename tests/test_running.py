"""The running top of a stream of coefficients, compared with sorting all of it."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

import tiny
from ffscope.models.encoder import Encoder
from ffscope.search.accumulators import SAMPLE, Accumulators, BatchInfo
from ffscope.search.highest import candidate_positions, first_positions, highest, plain
from ffscope.search.histogram import ABOVE_ZERO, BINS, EDGES, Histogram, bin_of
from ffscope.search.key_table import places
from ffscope.search.sample import RunningSample, mix
from ffscope.search.top import RunningTop
from ffscope.search.trigger_keys import EMPTY, LAST_PREFIX, coefficients_of, pack, prefixes_of

MEMORIES, TOP = 11, 5
CPU = torch.device("cpu")


def stream(seed, *, sentences=60, distinct=None):
    """Batches of coefficients, batch × pos × memory, of several lengths; few distinct numbers make many ties."""
    generator = torch.Generator().manual_seed(seed)
    batches, first = [], 0
    while sentences > 0:
        batch = int(torch.randint(1, 9, (), generator=generator))
        length = int(torch.randint(1, 7, (), generator=generator))
        values = torch.randn((batch, length, MEMORIES), generator=generator)
        if distinct:
            values = (values * distinct).round() / distinct
        batches.append((first + torch.arange(batch) * length, values))
        first += batch * length
        sentences -= batch
    return batches


def passing(firsts, length, picked=None):
    """A batch of which all prefixes are picked, or none."""
    rows = torch.ones((len(firsts), length), device=firsts.device).nonzero()
    rows = rows if picked is None else rows[:0]
    return BatchInfo(firsts, length, rows[:, 0], rows[:, 1], firsts[rows[:, 0]] + rows[:, 1])


def observed_state(batches, *, prefixes="best", seed=0, unlisted=0, resumed_at=None, dtype=torch.float32, layers=None):
    """`layers` are the dtypes of two layers' coefficients, by default `dtype`."""

    def start():
        names = torch.arange(MEMORIES, device=batches[0][0].device)
        return Accumulators(names, top=TOP, prefixes=prefixes, negative=True, seed=seed, dtype=dtype)

    accumulators = start()
    for number, (firsts, values) in enumerate(batches):
        if number == resumed_at:
            state, accumulators = accumulators.state(), start()
            accumulators.load(state)
        accumulators.begin(passing(firsts, values.shape[1]))
        padded = torch.cat([values.new_full((len(values), unlisted, MEMORIES), 99.0), values], 1)
        for columns, kind in zip((slice(0, 4), slice(4, MEMORIES)), layers or (dtype, dtype), strict=True):
            accumulators.observe(padded[..., columns].to(kind), columns)
        accumulators.end()
    return accumulators.state()


def sorted_whole(batches, memory, *, prefixes="best", sign=1):
    """(coefficient, prefix) of the first TOP, by sorting everything."""
    places = []
    for firsts, values in batches:
        for sentence, first in enumerate(firsts.tolist()):
            firing = [(sign * c, first + p) for p, c in enumerate(values[sentence, :, memory].tolist()) if sign * c > 0]
            places += firing if prefixes == "all" else sorted(firing, key=lambda place: (-place[0], place[1]))[:1]
    return sorted(places, key=lambda place: (-place[0], place[1]))[:TOP]


def rows(keys):
    return [
        [(c, p) for c, p in zip(coefficients_of(row).tolist(), prefixes_of(row).tolist(), strict=True) if c > 0]
        for row in keys
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("distinct", [None, 2])
@pytest.mark.parametrize("prefixes", ["best", "all"])
@pytest.mark.parametrize("buffered", [0, 17 * MEMORIES, 2**21])
def test_the_running_top_is_the_sorted_whole(seed, distinct, prefixes, buffered, monkeypatch):
    """Whether every batch is merged, several at once, or all at the end."""
    monkeypatch.setattr("ffscope.search.best_prefixes._BUFFER", buffered)
    batches = stream(seed, distinct=distinct)
    state = observed_state(batches, prefixes=prefixes, unlisted=seed % 2)
    for memory in range(MEMORIES):
        expected = sorted_whole(batches, memory, prefixes=prefixes)
        assert rows(state["top"])[memory] == [(pytest.approx(c), p) for c, p in expected]
        lowest = sorted_whole(batches, memory, prefixes=prefixes, sign=-1)
        assert rows(state["low"])[memory] == [(pytest.approx(c), p) for c, p in lowest]


WAYS = {"some at once": None, "all at once": lambda _: True, "one by one": lambda _: False}


@pytest.mark.parametrize("distinct", [None, 2])
@pytest.mark.parametrize("prefixes", ["best", "all"])
@pytest.mark.parametrize("buffered", [0, 17 * MEMORIES])
@pytest.mark.parametrize("sentences", [2, 60, 700])
def test_candidates_merged_at_once_are_those_merged_one_by_one(sentences, buffered, prefixes, distinct, monkeypatch):
    """Also if there are fewer sentences than t, if memories never fire, and if the search is resumed in the middle."""
    batches = stream(3, sentences=sentences, distinct=distinct)
    for _, values in batches:
        values[..., 2] = -values[..., 2].abs()
        values[..., 7] = 0.0
    merge_rows, merges = RunningTop.merge_rows, []
    monkeypatch.setattr("ffscope.search.best_prefixes._BUFFER", buffered)
    monkeypatch.setattr("ffscope.search.top._CHUNK_CPU", 20)
    monkeypatch.setattr(RunningTop, "merge_rows", lambda *args: merges.append(merge_rows(*args)))
    states, counts = [], []
    for way in WAYS.values():
        if way is not None:
            monkeypatch.setattr("ffscope.search.top.are_many", way)
            monkeypatch.setattr("ffscope.search.sample.are_many", way)
        for resumed_at in (None, len(batches) // 3):
            merges.clear()
            states.append(observed_state(batches, prefixes=prefixes, resumed_at=resumed_at))
            counts.append(len(merges))
    for state in states[1:]:
        assert all(torch.equal(tensor, states[0][name]) for name, tensor in state.items())
    assert counts[4:] == [0, 0]
    assert 0 < counts[0] < counts[2] or sentences == 2
    assert not states[0]["top"][[2, 7]].any()
    assert not states[0]["sample"][[2, 7]].any()


@pytest.mark.parametrize("device", tiny.DEVICES)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("prefixes", ["best", "all"])
@pytest.mark.parametrize("second", ["half", torch.float32])
def test_buffers_in_half_precision_lose_nothing(device, half, prefixes, second):
    """Also if the second layer computes in float32: then its coefficients are buffered in float32."""
    layers = (half, half if second == "half" else second)
    batches = []
    for firsts, values in stream(5, sentences=300):
        values[..., :4] = values[..., :4].to(layers[0])
        values[..., 4:] = values[..., 4:].to(layers[1])
        batches.append((firsts.to(device), values.to(device)))
    plain_state = observed_state(batches, prefixes=prefixes)
    state = observed_state(batches, prefixes=prefixes, dtype=half, layers=layers)
    assert all(torch.equal(tensor, plain_state[name]) for name, tensor in state.items())


@pytest.mark.parametrize("shape", [(9, 13, 30), (3, 1, 50), (5, 200, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [1, 1000, 2**18])
def test_first_positions_are_those_of_torch(shape, dtype, chunk, monkeypatch):
    monkeypatch.setattr("ffscope.search.highest._CHUNK", chunk)
    coefficients = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    for values in (coefficients, coefficients.relu(), coefficients.round(), -coefficients.abs().round()):
        maxima = values.max(1)
        assert torch.equal(first_positions(values, maxima.values.float()), maxima.indices)
        best, position = (torch.zeros((shape[0], shape[2]), dtype=dtype) for dtype in (torch.float32, torch.int16))
        highest(values, best, position)
        assert torch.equal(best, maxima.values.float())
        assert torch.equal(position.long(), maxima.indices)


def test_positions_of_candidates_are_those_of_torch():
    coefficients = torch.randn((9, 13, 30), generator=torch.Generator().manual_seed(0)).round()
    maxima, threshold = coefficients.max(1), torch.arange(30) / 10
    position = torch.full((9, 30), -1, dtype=torch.int16)
    candidate_positions(coefficients, maxima.values, threshold, position)
    assert torch.equal(position.long(), maxima.indices.where(maxima.values >= threshold, -1))


def test_places_are_those_of_torch():
    for rows in (1, 40):
        candidates = (torch.rand(rows, 33, generator=torch.Generator().manual_seed(0)) < 0.1).int()
        for mask in (candidates, candidates.bool(), torch.zeros_like(candidates)):
            assert torch.equal(torch.stack(places(mask), 1), mask.nonzero())


@pytest.mark.parametrize("seed", range(4))
def test_nothing_depends_on_the_order_of_batches(seed):
    batches = stream(seed, sentences=300, distinct=3)
    state, turned = observed_state(batches), observed_state(batches[::-1])
    for name in ("top", "low", "maximum", "histogram"):
        assert torch.equal(state[name], turned[name]), name
    assert torch.equal(state["sample"].sort(1).values, turned["sample"].sort(1).values)


def test_a_tie_goes_to_the_earlier_prefix_even_if_it_comes_later():
    top = RunningTop(1, 1, CPU)
    for first in (40, 20, 60):
        top.update(torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int16), torch.tensor([first]))
    top.merge()
    assert prefixes_of(top.keys).tolist() == [[20]]


def test_keys_are_in_the_order_of_the_contract():
    generator = torch.Generator().manual_seed(0)
    coefficients = torch.rand(500, generator=generator).mul(4).round().div(4).add(1e-30)
    coefficients[:3] = torch.tensor([1e-45, 3e38, 1.0])
    prefixes = torch.randperm(500, generator=generator)
    prefixes[0] = LAST_PREFIX
    keys = pack(coefficients, prefixes)
    order = sorted(range(500), key=lambda i: (-coefficients[i].item(), prefixes[i].item()))
    assert keys.argsort(descending=True).tolist() == order
    assert torch.equal(coefficients_of(keys), coefficients)
    assert torch.equal(prefixes_of(keys), prefixes)
    assert (keys > EMPTY).all()


def test_the_sample_is_of_firing_prefixes_and_whole_where_they_are_few():
    batches = stream(1, sentences=200)
    state = observed_state(batches)
    flat = torch.cat([values.flatten(0, 1) for _, values in batches])
    for memory in range(MEMORIES):
        places = rows(state["sample"])[memory]
        assert len(places) == SAMPLE
        assert all(flat[p, memory].item() == pytest.approx(c) for c, p in places)
    few = [(firsts, torch.where(firsts[:, None, None] % 50 == 0, values, -1.0)) for firsts, values in batches]
    fired = (torch.cat([values.flatten(0, 1) for _, values in few]) > 0).sum(0)
    assert [len(places) for places in rows(observed_state(few)["sample"])] == fired.clamp_max(SAMPLE).tolist()


def test_the_sample_is_uniform():
    """Every prefix should be drawn equally often by many memories; a chi-squared test at one in a million."""
    prefixes, memories = 100, 2000
    sample = RunningSample(torch.arange(memories), SAMPLE, seed=5)
    for start in range(0, prefixes, 10):
        sample.update(torch.ones(10, memories), torch.arange(start, start + 10), slice(0, memories))
    sample.merge()
    drawn = torch.bincount(prefixes_of(sample.keys).flatten(), minlength=prefixes).double()
    expected = memories * SAMPLE / prefixes
    assert ((drawn - expected) ** 2 / expected).sum() < 99 + 5 * (2 * 99) ** 0.5
    assert len({tuple(sorted(row)) for row in prefixes_of(sample.keys).tolist()}) > memories / 2


def test_hashed_numbers_are_uniform():
    mixed = mix(torch.arange(64_000)) % 64
    counts = torch.bincount(mixed, minlength=64).double()
    assert ((counts - 1000) ** 2 / 1000).sum() < 63 + 5 * (2 * 63) ** 0.5


def test_bins_have_the_edges_they_say():
    assert bin_of(0.0) == (BINS - 1) // 2
    assert [bin_of(edge) - bin_of(edge * 0.999) for edge in EDGES] == [1] * len(EDGES)
    assert [bin_of(-edge) for edge in EDGES] == [BINS - 1 - bin_of(edge) for edge in EDGES]
    assert (bin_of(1e9), bin_of(-1e9), bin_of(1e-9)) == (BINS - 1, 0, bin_of(0.0) + 1)


def test_the_tally_counts_and_sums():
    values = torch.randn(400, 3, generator=torch.Generator().manual_seed(0)) * 10 ** torch.tensor([0.0, -3.0, 3.0])
    values[:7] = 0.0
    tally = Histogram(3, CPU)
    tally.update(values, values)
    tally.add(values, slice(0, 3))
    for memory in range(3):
        counts = np.bincount([bin_of(value) for value in values[:, memory].tolist()], minlength=BINS)
        assert tally.histogram[memory].tolist() == counts.tolist()
    assert tally.histogram[:, ABOVE_ZERO].sum(1).tolist() == (values > 0).sum(0).tolist()
    assert torch.equal(tally.maximum, values.amax(0))
    assert tally.total.tolist() == pytest.approx(values.double().sum(0).tolist(), rel=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(7, 13, 300), (3, 1, 50), (65, 128, 1024)])
@pytest.mark.parametrize("half_buffers", [False, True])
def test_the_kernel_does_what_torch_does(shape, dtype, half_buffers):
    buffered = dtype if half_buffers else torch.float32
    coefficients = torch.randn(shape, device="cuda").relu().to(dtype)
    coefficients[0, 0, 0] = torch.inf
    results = []
    for way in (highest, plain):
        best = torch.zeros((shape[0], shape[2] + 9), dtype=buffered, device="cuda")[:, 4:-5]
        position = torch.zeros((shape[0], shape[2]), dtype=torch.int16, device="cuda")
        way(coefficients, best, position)
        results.append((best, position))
    assert all(torch.equal(result, other) for result, other in zip(*results, strict=True))
    coefficients[1, 0, 2] = torch.nan
    highest(coefficients, *results[0])
    assert results[0][0][1, 2].isnan()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_encoder_gives_the_same_word_vectors_on_a_gpu(tmp_path, tokenizer):
    config = BertConfig(vocab_size=67, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96)
    torch.manual_seed(0)
    BertModel(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = np.random.default_rng(0)
    words = ["".join(generator.choice(list("abcdefgh"), generator.integers(1, 20))) for _ in range(5000)]
    cpu, gpu, chosen = (Encoder(str(tmp_path), device) for device in ("cpu", "cuda", "auto"))
    assert next(gpu._model.parameters()).device.type == next(chosen._model.parameters()).device.type == "cuda"
    assert cpu.fingerprint == gpu.fingerprint
    expected = cpu.word_vectors(words)
    assert np.abs(expected).max() > 0.1
    for encoder in (gpu, chosen):
        np.testing.assert_allclose(encoder.word_vectors(words), expected, rtol=0, atol=1e-5)
