"""The paper's model: a transformer language model with adaptive inputs and an adaptive softmax (Baevski and Auli, 2019).

Modules are named as in fairseq, so its checkpoints load without renaming.
"""

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import CausalLMOutput

from ffscope.axes import Float, Int
from ffscope.models.adaptive_softmax import AdaptiveInput, AdaptiveSoftmax

_EPSILON = 1e-5  # of every norm
_MAX_PERIOD = 10_000  # the longest wavelength of the position embeddings, in units of 2π


class AdaptiveLMConfig(PretrainedConfig):
    """Bands, widths, depth, activation, norm placement and tying. Cutoffs are where bands end; the last is the vocabulary size."""

    model_type = "adaptive_lm"

    def __init__(
        self,
        *,
        input_cutoffs: list[int] | None = None,
        input_widths: list[int] | None = None,
        softmax_cutoffs: list[int] | None = None,
        softmax_widths: list[int] | None = None,
        hidden_size: int = 1024,
        intermediate_size: int = 4096,
        num_hidden_layers: int = 16,
        num_attention_heads: int = 8,
        activation_function: str = "relu",
        norm_before: bool = True,
        final_norm: bool = False,
        scale_embedding: bool = True,
        tie_adaptive_weights: bool = True,
        tie_adaptive_proj: bool = True,
        max_position_embeddings: int = 512,
        **more: Any,
    ) -> None:
        self.input_cutoffs = input_cutoffs or [20_000, 60_000, 267_744]
        self.input_widths = input_widths or [1024, 256, 64]
        self.softmax_cutoffs = softmax_cutoffs or list(self.input_cutoffs)
        self.softmax_widths = softmax_widths or list(self.input_widths)
        self.hidden_size, self.intermediate_size = hidden_size, intermediate_size
        self.num_hidden_layers, self.num_attention_heads = num_hidden_layers, num_attention_heads
        self.activation_function = activation_function
        self.norm_before, self.final_norm, self.scale_embedding = norm_before, final_norm, scale_embedding
        self.tie_adaptive_weights, self.tie_adaptive_proj = tie_adaptive_weights, tie_adaptive_proj
        self.max_position_embeddings = max_position_embeddings
        # transformers can only tie whole matrices; here the modules share the bands themselves.
        super().__init__(**{"pad_token_id": 1, "eos_token_id": 2, **more, "tie_word_embeddings": False})

    @property
    def vocab_size(self) -> int:
        return self.input_cutoffs[-1]


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: AdaptiveLMConfig) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(config.hidden_size, config.hidden_size) for _ in range(4)
        )

    def forward(
        self, hidden_states: Float[Tensor, "batch pos hidden"], mask: Tensor | None
    ) -> Float[Tensor, "batch pos hidden"]:
        query, key, value = (
            project(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(attended.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """Attention and a feed-forward layer, each with a norm before it (pre-norm) or after its sum with the residual (post-norm)."""

    def __init__(self, config: AdaptiveLMConfig) -> None:
        super().__init__()
        self.norm_before = config.norm_before
        self.self_attn = Attention(config)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size, eps=_EPSILON)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation_fn = ACT2FN[config.activation_function]
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=_EPSILON)

    def forward(
        self, hidden_states: Float[Tensor, "batch pos hidden"], mask: Tensor | None
    ) -> Float[Tensor, "batch pos hidden"]:
        if self.norm_before:
            residual = hidden_states + self.self_attn(self.self_attn_layer_norm(hidden_states), mask)
            return residual + self._feed_forward(self.final_layer_norm(residual))
        residual = self.self_attn_layer_norm(hidden_states + self.self_attn(hidden_states, mask))
        return self.final_layer_norm(residual + self._feed_forward(residual))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation_fn(self.fc1(x)))


class AdaptiveLM(PreTrainedModel, GenerationMixin):
    """The language model. Its logits are log-probabilities, since an adaptive softmax gives no other logits."""

    config_class = AdaptiveLMConfig
    main_input_name = "input_ids"

    def __init__(self, config: AdaptiveLMConfig) -> None:
        super().__init__(config)
        self.embed_tokens = AdaptiveInput(
            cutoffs=config.input_cutoffs, widths=config.input_widths, hidden=config.hidden_size
        )
        self.embed_scale = math.sqrt(config.hidden_size) if config.scale_embedding else 1.0
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=_EPSILON) if config.final_norm else None
        width = config.softmax_widths[0]
        same_width = width == config.hidden_size
        self.project_out_dim = None if same_width else nn.Linear(config.hidden_size, width, bias=False)
        self.adaptive_softmax = AdaptiveSoftmax(
            cutoffs=config.softmax_cutoffs,
            widths=config.softmax_widths,
            tied=self.embed_tokens if config.tie_adaptive_weights else None,
            tied_projections=config.tie_adaptive_proj,
        )
        self.post_init()

    def get_input_embeddings(self) -> AdaptiveInput:
        return self.embed_tokens

    def get_output_embeddings(self) -> AdaptiveSoftmax:
        return self.adaptive_softmax

    def forward(
        self,
        input_ids: Int[Tensor, "batch pos"],
        attention_mask: Tensor | None = None,
        logits_to_keep: int = 0,
        **_ignored: Any,
    ) -> CausalLMOutput:
        """The next-token log-probabilities at every position; with `logits_to_keep`, only at that many last positions."""
        states = self.body(input_ids, attention_mask)
        return CausalLMOutput(logits=self.adaptive_softmax(states[:, -logits_to_keep:]))

    def body(
        self, input_ids: Int[Tensor, "batch pos"], attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch pos width"]:
        """The final states, as passed to the softmax."""
        present = input_ids != self.config.pad_token_id
        if attention_mask is not None:
            present = present & attention_mask.bool()
        states = self.embed_tokens(input_ids) * self.embed_scale
        states = states + self._positions(present).to(states)
        mask = None if bool(present.all()) else _mask(present)
        for layer in self.layers:
            states = layer(states, mask)
        if self.layer_norm is not None:
            states = self.layer_norm(states)
        if self.project_out_dim is not None:
            states = self.project_out_dim(states)
        return states

    def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: Any) -> dict[str, Any]:
        """The whole text at every step, since there is no cache."""
        return {"input_ids": input_ids, "attention_mask": kwargs.get("attention_mask"), "logits_to_keep": 1}

    def _positions(self, present: Tensor) -> Float[Tensor, "batch pos hidden"]:
        """Sinusoidal position embeddings. Positions count the non-padding tokens from the padding id + 1; padding gets zeros."""
        first = self.config.pad_token_id
        table = _sinusoids(first + 1 + present.shape[1], self.config.hidden_size).to(present.device)
        numbers = present.cumsum(1) * present + first
        return table[numbers] * present.unsqueeze(-1)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initial weights for a model that is not loaded from a file."""
        if isinstance(module, nn.Linear):
            module.weight.normal_(std=module.in_features**-0.5)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            module.weight.normal_(std=module.embedding_dim**-0.5)
        elif isinstance(module, nn.LayerNorm):
            module.weight.fill_(1.0)
            module.bias.zero_()


def _mask(present: Tensor) -> Tensor:
    """The causal attention mask without padding. Padding at the start attends to itself, as it has nothing else to attend to."""
    length = present.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=present.device).tril() & present[:, None, None, :]
    itself = torch.eye(length, dtype=torch.bool, device=present.device)
    return causal | (itself & ~causal.any(-1, keepdim=True))


@lru_cache(maxsize=64)
def _sinusoids(length: int, width: int) -> Float[Tensor, "pos hidden"]:
    """All sines, then all cosines, from the highest frequency to the lowest; an odd last column is 0."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(_MAX_PERIOD) / (half - 1)))
    angles = torch.arange(length, dtype=torch.float32)[:, None] * frequencies
    return nn.functional.pad(torch.cat([angles.sin(), angles.cos()], 1), (0, width % 2))


AutoConfig.register(AdaptiveLMConfig.model_type, AdaptiveLMConfig, exist_ok=True)
AutoModelForCausalLM.register(AdaptiveLMConfig, AdaptiveLM, exist_ok=True)
