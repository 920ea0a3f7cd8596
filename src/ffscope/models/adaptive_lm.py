"""The paper's own model: a transformer language model with adaptive inputs and an adaptive softmax (Baevski and Auli, 2019).

Modules have the names that fairseq gives them, so that its checkpoints are read without a dictionary of names.
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
_SLOWEST = 10_000  # the longest of the positions' wave lengths, in units of 2π


class AdaptiveLMConfig(PretrainedConfig):
    """Bands, widths, depth, activation, norm placement and tying. Cut-offs say where bands end, the last with the vocabulary."""

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
        # transformers ties whole matrices; here bands are shared by the modules themselves.
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
            made(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for made in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None)
        return self.out_proj(attended.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """Attention and feed-forward layer, each with a norm before it, or behind its sum with the residual."""

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
    """The language model. Its logits are log-probabilities: an adaptive softmax has no others."""

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
        output = config.softmax_widths[0]
        same = output == config.hidden_size
        self.project_out_dim = None if same else nn.Linear(config.hidden_size, output, bias=False)
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
        """The log-probabilities of every next token; with `logits_to_keep`, after the last so many positions alone."""
        states = self.body(input_ids, attention_mask)
        return CausalLMOutput(logits=self.adaptive_softmax(states[:, -logits_to_keep:]))

    def body(
        self, input_ids: Int[Tensor, "batch pos"], attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch pos width"]:
        """The last states, as the softmax gets them."""
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
        """The whole text at every step: nothing is kept from the step before."""
        return {"input_ids": input_ids, "attention_mask": kwargs.get("attention_mask"), "logits_to_keep": 1}

    def _positions(self, present: Tensor) -> Float[Tensor, "batch pos hidden"]:
        """Waves for each token's number among those that are present, counted from the padding id + 1; padding has none."""
        first = self.config.pad_token_id
        waves = _waves(first + 1 + present.shape[1], self.config.hidden_size).to(present.device)
        numbers = present.cumsum(1) * present + first
        return waves[numbers] * present.unsqueeze(-1)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """For a model that is made and not read."""
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
    """Who may be looked at: what stands before and is no padding. Padding before all else looks at itself, having nothing else."""
    length = present.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=present.device).tril() & present[:, None, None, :]
    itself = torch.eye(length, dtype=torch.bool, device=present.device)
    return seen | (itself & ~seen.any(-1, keepdim=True))


@lru_cache(maxsize=64)
def _waves(length: int, width: int) -> Float[Tensor, "pos hidden"]:
    """All sines, then all cosines, from the fastest wave to the slowest; an odd last column is 0."""
    half = width // 2
    speeds = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(_SLOWEST) / (half - 1)))
    turns = torch.arange(length, dtype=torch.float32)[:, None] * speeds
    return nn.functional.pad(torch.cat([turns.sin(), turns.cos()], 1), (0, width % 2))


AutoConfig.register(AdaptiveLMConfig.model_type, AdaptiveLMConfig, exist_ok=True)
AutoModelForCausalLM.register(AdaptiveLMConfig, AdaptiveLM, exist_ok=True)
