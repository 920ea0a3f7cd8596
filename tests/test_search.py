"""A model over batches: what it is given, where it stops, and that another device hears the same."""

import numpy as np
import pytest
import torch

import tiny
from ffscope import read
from ffscope.corpus.batches import Batch
from ffscope.errors import ProofError
from ffscope.models.loading import lay_out
from ffscope.search.execute import Search
from ffscope.search.passes import sentence_inputs
from ffscope.search.trigger_keys import coefficients_of


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
    with search.listening():
        for batch in some_batches():
            search.run(batch)
    return search.listener.state()


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
    with search.listening(), pytest.raises(ProofError, match="did not run in this pass"):
        search.run(next(some_batches()))


def test_edits_in_force_are_heard(tokenizer):
    model = read(tiny.make("llama"), tokenizer)
    with model.edit(set={"L1.4": 7.5}):
        state = searched(model)
    assert coefficients_of(state["top"][22 + 4]).tolist() == [7.5] * 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["gpt2", "llama", "mixtral", "gpt_neox", "bert", "t5"])
@pytest.mark.parametrize("prefixes", ["best", "all"])
def test_a_gpu_finds_what_a_cpu_finds(name, prefixes, tokenizer):
    cpu, gpu = (
        searched(lay_out(tiny.make(name).to(device), tokenizer), negative=True, prefixes=prefixes)
        for device in ("cpu", "cuda")
    )
    for table in ("top", "low"):
        torch.testing.assert_close(coefficients_of(gpu[table].cpu()), coefficients_of(cpu[table]), rtol=1e-3, atol=1e-5)
    assert (gpu["histogram"].cpu() - cpu["histogram"]).abs().sum() <= 1e-3 * cpu["histogram"].sum()
    torch.testing.assert_close(gpu["maximum"].cpu(), cpu["maximum"], rtol=1e-3, atol=1e-5)
