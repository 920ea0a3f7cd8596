"""Discovery of models that are not in the table, or are read without it."""

import pytest
import torch
import transformers as hf

import tiny
from ffscope import LayoutError, check, read
from ffscope.models.discovery import discover
from ffscope.models.memory_model import MemoryModel

_DEEPSEEK = {
    **tiny._LLAMA,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "moe_intermediate_size": 16,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 6,
    "kv_lora_rank": 5,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 8,
}
UNKNOWN = {
    "stablelm": (hf.StableLmForCausalLM, hf.StableLmConfig, tiny._LLAMA),
    "stablelm parallel": (hf.StableLmForCausalLM, hf.StableLmConfig, {**tiny._LLAMA, "use_parallel_residual": True}),
    "cohere, logits scaled": (hf.CohereForCausalLM, hf.CohereConfig, {**tiny._LLAMA, "logit_scale": 0.25}),
    "starcoder2": (hf.Starcoder2ForCausalLM, hf.Starcoder2Config, tiny._LLAMA),
    "glm4, fused and post-norm": (hf.Glm4ForCausalLM, hf.Glm4Config, {**tiny._LLAMA, "head_dim": 8}),
    "nemotron, relu²": (hf.NemotronForCausalLM, hf.NemotronConfig, {**tiny._LLAMA, "hidden_act": "relu2"}),
    "granitemoe": (
        hf.GraniteMoeForCausalLM,
        hf.GraniteMoeConfig,
        {**tiny._MOE, "num_local_experts": 5, "residual_multiplier": 0.3, "logits_scaling": 4.0},
    ),
    "deepseek_v3, shared experts": (hf.DeepseekV3ForCausalLM, hf.DeepseekV3Config, _DEEPSEEK),
    "qwen2_moe, a shared expert with a gate of its own": (
        hf.Qwen2MoeForCausalLM,
        hf.Qwen2MoeConfig,
        {**tiny._MOE, "num_experts": 5, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24},
    ),
    "electra, masked": (hf.ElectraForMaskedLM, hf.ElectraConfig, {**tiny._BERT, "embedding_size": 10}),
    "mbart, two stacks": (hf.MBartForConditionalGeneration, hf.MBartConfig, tiny._BART),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_ordinary_model_just_works(name, caplog):
    caplog.set_level("INFO", logger="ffscope")
    model = read(tiny.build(*UNKNOWN[name]))
    assert model.discovered
    assert "was discovered and passes every identity" in caplog.text
    assert all(finding.holds for finding in check(model))


@pytest.mark.parametrize("name", tiny.sweep(tiny.TABLE))
def test_discovery_finds_what_the_table_says(name):
    hf_model = tiny.make(name)
    known, discovered = read(hf_model), MemoryModel(hf_model, None, discover(hf_model), discovered=True)
    assert discovered.memories == known.memories
    assert all(finding.holds for finding in check(discovered))
    for layer in range(known.layers):
        ours, theirs = known.keys(layer), discovered.keys(layer)
        pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
        assert all(bool((a == b).all()) for a, b in pairs)


def test_shared_experts_stand_behind_the_routed_ones():
    model = read(tiny.build(*UNKNOWN["deepseek_v3, shared experts"]))
    assert model.memories == (20, 6 * 16 + 16, 6 * 16 + 16)
    trace = model.trace(list(range(4, 10)))
    assert (trace.coefficients[1][..., 6 * 16 :] != 0).all()


def test_an_edit_reaches_a_weighed_shared_expert():
    model = read(tiny.build(*UNKNOWN["qwen2_moe, a shared expert with a gate of its own"]))
    ids = list(range(4, 10))
    before = model.trace(ids)
    memory = 5 * 16 + 3
    with model.edit(scale={f"L1.{memory}": 4.0}), model.edit(scale={f"L1.{memory}": 0.5}):
        after = model.trace(ids)
    added = before.coefficients[1][..., memory, None] * model.values(1)[memory]
    torch.testing.assert_close(after.coefficients[1][..., memory], before.coefficients[1][..., memory] * 2)
    torch.testing.assert_close(after.update[1], before.update[1] + added, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("cls", "config", "block"),
    [
        (hf.MambaForCausalLM, hf.MambaConfig, "MambaBlock"),
        (hf.RwkvForCausalLM, hf.RwkvConfig, "RwkvBlock"),
    ],
)
def test_a_model_without_feed_forward_memories_is_refused(cls, config, block):
    model = cls(config(vocab_size=67, hidden_size=12, num_hidden_layers=2)).eval()
    message = rf"No feed-forward layout for model_type '{config.model_type}'\. Expected in every block .*; found in a {block}: "
    with pytest.raises(LayoutError, match=message):
        read(model)


def test_a_near_miss_is_named():
    model = tiny.make("gpt_neox")
    model.config.model_type = "gpt_neo_x"
    assert read(model).discovered  # an unknown name is no obstacle to an ordinary model
    broken = hf.MambaForCausalLM(hf.MambaConfig(vocab_size=67, hidden_size=12, num_hidden_layers=1)).eval()
    broken.config.model_type = "gpt_neo_x"
    with pytest.raises(LayoutError, match=r"model_type 'gpt_neo_x'\. Did you mean 'gpt_neox'\?"):
        read(broken)


def test_a_block_that_cannot_be_read_is_not_left_out():
    """Llama 4's experts have a layout of their own; reading only its dense layers would misnumber the layers."""
    arguments = {
        "vocab_size": 67,
        "hidden_size": 8,
        "intermediate_size": 4,
        "intermediate_size_mlp": 6,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "num_local_experts": 2,
        "moe_layers": [1],
        "pad_token_id": 1,
    }
    with pytest.raises(
        LayoutError, match=r"found in 2 of 3 blocks, but none in model\.layers\.1 \(Llama4TextDecoderLayer\)"
    ):
        read(tiny.build(hf.Llama4ForCausalLM, hf.Llama4TextConfig, arguments))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e6), (torch.float16, 40.0), (torch.bfloat16, 60.0)])
def test_a_large_residual_hides_nothing(dtype, size, monkeypatch):
    """One dimension far larger than the rest must not make a wrong residual look right."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    hf_model = tiny.make("llama")
    hf_model.get_input_embeddings().weight.data[:, 0] = size
    hf_model = hf_model.to(dtype)
    hf_model.config.model_type = "my_llama"
    family = discover(hf_model)
    assert {(block.residual, block.scale) for block in family.blocks} == {("in:post_attention_layernorm", 1.0)}


@pytest.mark.parametrize(
    ("cls", "config"),
    [(hf.WhisperForConditionalGeneration, hf.WhisperConfig), (hf.Wav2Vec2Model, hf.Wav2Vec2Config)],
)
def test_models_that_do_not_take_text_are_refused(cls, config):
    small = {"d_model": 8, "hidden_size": 16, "num_hidden_layers": 1, "encoder_layers": 1, "decoder_layers": 1}
    with pytest.raises(LayoutError, match=r"takes input_(features|values); expected a model that takes text"):
        read(cls(config(**small, encoder_attention_heads=2, decoder_attention_heads=2, num_attention_heads=2)).eval())
