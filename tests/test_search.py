"""The model over batches: its inputs, where it stops, and that another device observes the same."""

import math

import numpy as np
import pytest
import torch

import tiny
from ffscope import read
from ffscope.corpus.batches import Batch
from ffscope.corpus.ingest import write_sentences
from ffscope.corpus.reading import Reading
from ffscope.engines import engine_names
from ffscope.engines.local import LocalEngine
from ffscope.errors import InputError, ProofError
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.search import SearchOptions
from ffscope.search.execute import Search, execute
from ffscope.search.histogram import Histogram
from ffscope.search.merge import merge
from ffscope.search.passes import sentence_inputs
from ffscope.search.plan import make_plan, shards
from ffscope.search.state_copy import start_copy
from ffscope.search.trigger_keys import coefficients_of
from ffscope.study.folder import Study


def some_batches(count=6):
    generator = np.random.default_rng(0)
    first = 0
    for number in range(count):
        size, length = 3 + number, 5 + number % 3
        tokens = generator.integers(4, 60, (size, length), dtype=np.int32)
        firsts = first + np.arange(size) * length
        first += size * length
        yield Batch(np.arange(size) + 100 * number, firsts, tokens)


def searched(model, **options):
    search = Search(model, top=6, **options)
    with search.tapping():
        for batch in some_batches():
            search.run(batch)
    return search.accumulators.state()


@pytest.mark.parametrize("name", ["llama", "opt", "bert"])
@pytest.mark.parametrize("prefixes", ["best", "all"])
@pytest.mark.parametrize("negative", [False, True])
def test_merged_shards_are_one_run_bit_for_bit(name, prefixes, negative, tokenizer):
    model = read(tiny.make(name), tokenizer)
    options = {"top": 6, "prefixes": prefixes, "negative": negative, "seed": 5, "rarity": 2}
    batches = list(some_batches(24))
    whole = execute(Search(model, **options), batches)
    assert ("low" in whole) == negative
    generator = np.random.default_rng(1)
    for parts in (2, 5, 24):
        numbers = generator.integers(0, parts, len(batches))
        order = generator.permutation(parts)
        states = [
            execute(
                Search(model, **options), [batches[i] for i in generator.permutation(np.flatnonzero(numbers == part))]
            )
            for part in order
        ]
        same(merge(states), whole)
        half = len(states) // 2
        same(merge([merge(states[half:]), merge(states[:half])]), whole)


@pytest.mark.parametrize("prefixes", ["best", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_from_other_shards_change_no_merged_state(prefixes, seed, tokenizer):
    model, batches = read(tiny.make("opt"), tokenizer), list(some_batches(24))
    options = {"top": 4, "prefixes": prefixes, "negative": True, "rarity": 2}
    numbers = np.random.default_rng(seed).integers(0, 6, len(batches))
    states, kept, unbounded = [], 0, 0
    for number in range(6):
        shard = [batch for batch, place in zip(batches, numbers, strict=True) if place == number]
        search = Search(model, **options)
        if states:
            search.accumulators.skip_below(merge(states))
        states.append(execute(search, shard))
        kept += keys_in(states[-1])
        unbounded += keys_in(execute(Search(model, **options), shard))
    same(merge(states), execute(Search(model, **options), batches))
    assert kept < unbounded


@pytest.mark.parametrize("device", tiny.DEVICES)
def test_a_state_is_copied_beside_other_work(device, tokenizer):
    model = make_memory_model(tiny.make("llama").to(device), tokenizer)
    state = searched(model)
    expected = {name: tensor.cpu() for name, tensor in state.items()}
    wait = start_copy(dict(state))
    for tensor in [tensor.clone() for tensor in state.values()] if device == "cuda" else []:
        tensor.random_()  # beside the copy
    copies = wait()
    assert all(tensor.device.type == "cpu" for tensor in copies.values())
    same(copies, expected)


def test_a_merged_state_continues_as_one_that_was_not_split(tokenizer):
    model, batches = read(tiny.make("llama"), tokenizer), list(some_batches(12))
    options = {"top": 6, "negative": True}
    resumed = Search(model, **options)
    resumed.accumulators.load(merge([execute(Search(model, **options), batches[start:9:3]) for start in range(3)]))
    same(execute(resumed, batches[9:]), execute(Search(model, **options), batches))


def keys_in(state):
    return sum(int((state[name] > 0).sum()) for name in ("top", "low", "sample"))


def same(state, other):
    assert state.keys() == other.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0, 3e4, 1e34])
def test_sums_are_the_same_in_any_order_of_batches(size):
    generator = torch.Generator().manual_seed(0)
    signs = torch.tensor([1, -1]).repeat(2048)[:, None]
    values = torch.randn(4096, 7, generator=generator).exp() * size * signs
    totals = []
    for _ in range(4):
        tally = Histogram(7, torch.device("cpu"))
        batches = values.split(41)
        for number in torch.randperm(len(batches), generator=generator).tolist():
            tally.update(batches[number], batches[number])
        totals.append(tally.total)
    if size < 1e30:  # beyond what is promised
        assert all(torch.equal(total, totals[0]) for total in totals)
    exact = [math.fsum(column) for column in values.T.tolist()]
    assert totals[0].tolist() == pytest.approx(exact, rel=1e-9, abs=len(batches) * 2.0**-43)


def test_shards_are_the_batches_of_the_plan(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("".join(f"{'word ' * (i % 7)}end {i}.\n" for i in range(400)))
    model = read(tiny.make("llama"), tokenizer)
    with Study.writing(tmp_path / "study", {}) as study:
        write_sentences(study, tokenizer, CorpusOptions(str(tmp_path / "text.txt")))
        plan = make_plan(LocalEngine(model), SearchOptions(top=3, batch_tokens=50), Reading(study))
    read_shards = list(shards(plan, Reading(study)))
    assert [shard.number for shard in read_shards] == list(range(len(read_shards)))
    assert len(read_shards) > 2
    assert sum(len(batch.sentences) for shard in read_shards for batch in shard.batches) == plan.total["sentences"]
    assert sum(batch.tokens.size for shard in read_shards for batch in shard.batches) == plan.total["prefixes"]


def test_an_engine_is_found_by_its_modules_name():
    assert engine_names() == ("local", "ray")
    with pytest.raises(InputError, match=r"'cloud'.*local.*ray"):
        EngineOptions(engine="cloud")


def test_a_pass_ends_with_the_last_coefficients(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    ran = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in model.model.named_modules()
    ]
    searched(model, layers=[0, 1])
    for handle in handles:
        handle.remove()
    assert "model.layers.1.mlp.up_proj" in ran
    assert not {"model.layers.1.mlp.down_proj", "model.layers.2.self_attn", "model.norm", "lm_head"} & set(ran)


def test_the_sentence_stands_behind_bos(tokenizer):
    batch = next(some_batches())
    for bos, first in ((True, [tokenizer.bos_token_id]), (False, [])):
        search = Search(read(tiny.make("gpt2"), tokenizer), top=1, bos=bos)
        inputs = sentence_inputs(search.model, batch.tokens, search.bos)
        assert inputs["input_ids"][0].tolist() == [*first, *batch.tokens[0].tolist()]
    search = Search(read(tiny.make("bart"), tokenizer), top=1)
    inputs = sentence_inputs(search.model, batch.tokens, search.bos)
    assert inputs["decoder_input_ids"][0].tolist() == [3, *batch.tokens[0].tolist()]


def test_a_layer_that_does_not_run_is_noticed(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    search = Search(model, top=2)
    model.model.model.layers[1].mlp.forward = lambda x: x
    with search.tapping(), pytest.raises(ProofError, match="did not run in this pass"):
        search.run(next(some_batches()))


def test_active_edits_are_observed(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    with model.edit(set={"L1.4": 7.5}):
        state = searched(model)
    assert coefficients_of(state["top"][22 + 4]).tolist() == [7.5] * 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "gpt_neox", "bert", "t5"])
@pytest.mark.parametrize("prefixes", ["best", "all"])
def test_a_gpu_finds_what_a_cpu_finds(name, prefixes, tokenizer):
    cpu, gpu = (
        searched(make_memory_model(tiny.make(name).to(device), tokenizer), negative=True, prefixes=prefixes)
        for device in ("cpu", "cuda")
    )
    for table in ("top", "low"):
        torch.testing.assert_close(coefficients_of(gpu[table].cpu()), coefficients_of(cpu[table]), rtol=1e-3, atol=1e-5)
    assert (gpu["histogram"].cpu() - cpu["histogram"]).abs().sum() <= 1e-3 * cpu["histogram"].sum()
    torch.testing.assert_close(gpu["maximum"].cpu(), cpu["maximum"], rtol=1e-3, atol=1e-5)
