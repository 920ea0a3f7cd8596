"""One tiny random model per family: every parameter randomised, no two axes of the same size."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import transformers as hf

from ffscope.models.adaptive_lm import AdaptiveLM, AdaptiveLMConfig

VOCAB, POSITIONS = 67, 41
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
_COMMON: dict[str, Any] = {"vocab_size": VOCAB, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3}
_LLAMA: dict[str, Any] = {
    **_COMMON,
    "hidden_size": 12,
    "intermediate_size": 22,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": POSITIONS,
    "hidden_act": "silu",
}
_WHOLE_ROPE = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
_GEMMA = {**_LLAMA, "hidden_act": "gelu_pytorch_tanh", "head_dim": 8}
_BERT = {**_LLAMA, "hidden_act": "gelu"}
_MOE = {**_LLAMA, "num_experts_per_tok": 2, "intermediate_size": 20}  # grouped matrix products want multiples of 4
_GPT2 = {**_COMMON, "n_embd": 12, "n_inner": 22, "n_layer": 3, "n_head": 2, "n_positions": POSITIONS}
_NEOX = {**_LLAMA, "hidden_act": "gelu"}
_OPT = {
    **_COMMON,
    "hidden_size": 12,
    "ffn_dim": 22,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
    "word_embed_proj_dim": 12,
}
_FALCON = {**_COMMON, "hidden_size": 12, "ffn_hidden_size": 22, "num_hidden_layers": 3, "num_attention_heads": 2}
_T5 = {
    **_COMMON,
    "d_model": 12,
    "d_kv": 6,
    "d_ff": 22,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "decoder_start_token_id": 0,
}
_BART = {
    **_COMMON,
    "d_model": 12,
    "encoder_ffn_dim": 22,
    "decoder_ffn_dim": 26,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
    "decoder_start_token_id": 3,
}
_ADAPTIVE = {
    "input_cutoffs": [21, 40, VOCAB],
    "input_widths": [12, 5, 2],
    "hidden_size": 12,
    "intermediate_size": 22,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": POSITIONS,
}
_UNTIED = {
    **_ADAPTIVE,
    "softmax_cutoffs": [30, VOCAB],
    "softmax_widths": [10, 4],
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
    "final_norm": True,
    "activation_function": "gelu",  # with coefficients below 0
}

# name → the class of the model, its config's class, the config's arguments
TABLE: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config, _GPT2),
    "gpt_neo": (
        hf.GPTNeoForCausalLM,
        hf.GPTNeoConfig,
        {
            **_COMMON,
            "hidden_size": 12,
            "intermediate_size": 22,
            "num_layers": 2,
            "num_heads": 2,
            "attention_types": [[["global", "local"], 1]],
            "max_position_embeddings": POSITIONS,
            "window_size": 4,
        },
    ),
    "gptj": (hf.GPTJForCausalLM, hf.GPTJConfig, {**_GPT2, "rotary_dim": 4, "tie_word_embeddings": False}),
    "gpt_neox": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, _NEOX),
    "gpt_neox serial": (hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, {**_NEOX, "use_parallel_residual": False}),
    "opt": (hf.OPTForCausalLM, hf.OPTConfig, _OPT),
    "opt post-norm": (
        hf.OPTForCausalLM,
        hf.OPTConfig,
        {**_OPT, "do_layer_norm_before": False, "word_embed_proj_dim": 10},
    ),
    "bloom": (hf.BloomForCausalLM, hf.BloomConfig, {**_COMMON, "hidden_size": 12, "n_layer": 3, "n_head": 2}),
    "bloom post-norm residual": (
        hf.BloomForCausalLM,
        hf.BloomConfig,
        {
            **_COMMON,
            "hidden_size": 12,
            "n_layer": 3,
            "n_head": 2,
            "apply_residual_connection_post_layernorm": True,
        },
    ),
    "falcon": (hf.FalconForCausalLM, hf.FalconConfig, {**_FALCON, "bias": True}),
    "falcon serial": (hf.FalconForCausalLM, hf.FalconConfig, {**_FALCON, "parallel_attn": False, "alibi": True}),
    "falcon new": (
        hf.FalconForCausalLM,
        hf.FalconConfig,
        {**_FALCON, "new_decoder_architecture": True, "num_kv_heads": 1},
    ),
    "phi": (hf.PhiForCausalLM, hf.PhiConfig, {**_LLAMA, "hidden_act": "gelu_new", "rope_parameters": _WHOLE_ROPE}),
    "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config, _LLAMA),
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, {**_LLAMA, "mlp_bias": True}),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig, _LLAMA),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config, _LLAMA),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config, {**_LLAMA, "head_dim": 8}),
    "gemma": (hf.GemmaForCausalLM, hf.GemmaConfig, _GEMMA),
    "gemma2": (
        hf.Gemma2ForCausalLM,
        hf.Gemma2Config,
        {**_GEMMA, "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": 7.0},
    ),
    "gemma3": (
        hf.Gemma3ForCausalLM,
        hf.Gemma3TextConfig,
        {**_GEMMA, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4},
    ),
    "olmo": (hf.OlmoForCausalLM, hf.OlmoConfig, _LLAMA),
    "olmo2": (hf.Olmo2ForCausalLM, hf.Olmo2Config, _LLAMA),
    "granite": (
        hf.GraniteForCausalLM,
        hf.GraniteConfig,
        {**_LLAMA, "residual_multiplier": 0.3, "logits_scaling": 5.0, "mlp_bias": True},
    ),
    "mixtral": (hf.MixtralForCausalLM, hf.MixtralConfig, {**_MOE, "num_local_experts": 5}),
    "qwen3_moe": (
        hf.Qwen3MoeForCausalLM,
        hf.Qwen3MoeConfig,
        {**_MOE, "num_experts": 5, "moe_intermediate_size": 16, "mlp_only_layers": [1], "head_dim": 8},
    ),
    "olmoe": (hf.OlmoeForCausalLM, hf.OlmoeConfig, {**_MOE, "num_experts": 5}),
    "gpt_oss": (
        hf.GptOssForCausalLM,
        hf.GptOssConfig,
        {**_MOE, "num_local_experts": 5, "head_dim": 8, "sliding_window": 4},
    ),
    "bert": (hf.BertForMaskedLM, hf.BertConfig, _BERT),
    "roberta": (hf.RobertaForMaskedLM, hf.RobertaConfig, _BERT),
    "distilbert": (
        hf.DistilBertForMaskedLM,
        hf.DistilBertConfig,
        {**_COMMON, "dim": 12, "hidden_dim": 22, "n_layers": 3, "n_heads": 2, "max_position_embeddings": POSITIONS},
    ),
    "modernbert": (
        hf.ModernBertForMaskedLM,
        hf.ModernBertConfig,
        {
            **_BERT,
            "hidden_activation": "gelu",
            "cls_token_id": 2,
            "sep_token_id": 3,
            "mlp_bias": True,
            "norm_bias": True,
        },
    ),
    "t5": (hf.T5ForConditionalGeneration, hf.T5Config, {**_T5, "feed_forward_proj": "relu"}),
    "t5 gated": (
        hf.T5ForConditionalGeneration,
        hf.T5Config,
        {**_T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "bart": (hf.BartForConditionalGeneration, hf.BartConfig, _BART),
    "adaptive_lm": (AdaptiveLM, AdaptiveLMConfig, _ADAPTIVE),
    "adaptive_lm untied": (AdaptiveLM, AdaptiveLMConfig, _UNTIED),
    "adaptive_lm post-norm": (
        AdaptiveLM,
        AdaptiveLMConfig,
        {**_ADAPTIVE, "norm_before": False, "tie_adaptive_proj": False, "scale_embedding": False},
    ),
    "vit": (
        hf.ViTModel,
        hf.ViTConfig,
        {
            "hidden_size": 12,
            "intermediate_size": 22,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": 16,
            "patch_size": 4,
            "num_channels": 3,
        },
    ),
}

# One model of each kind: plain, gated, with experts, with a norm after the layer or after the sum, parallel, encoder,
# encoder–decoder, adaptive, for images.
KINDS = ("gpt2", "llama", "qwen3_moe", "gemma2", "opt post-norm", "falcon", "bert", "t5", "adaptive_lm", "vit")


def sweep(names: Iterable[str], *more: Any) -> list[Any]:
    """Parameters of a test: one model of each kind for `make test`, the others for `make test-slow`."""
    return [pytest.param(name, *more, marks=() if name in KINDS else pytest.mark.slow) for name in names]


def make(name: str, seed: int = 0) -> Any:
    """A tiny model of that name, in float32 and evaluation mode."""
    cls, config_class, arguments = TABLE[name]
    return build(cls, config_class, arguments, seed)


def build(cls: Any, config_class: Any, arguments: dict[str, Any], seed: int = 0) -> Any:
    """A tiny model with every parameter and buffer-like bias random: zero biases and unit norms hide mistakes."""
    config = config_class(**arguments)
    # T5 turns this one into `scale_decoder_outputs`.
    unknown = [
        name for name in arguments if getattr(config, name, None) != arguments[name] and name != "tie_word_embeddings"
    ]
    assert not unknown, f"the config took no notice of {unknown}"
    model = cls(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=generator))
    assert sum(parameter.numel() for parameter in model.parameters()) < 20_000
    return model
