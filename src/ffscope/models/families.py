"""The table of model families: where each has its keys, values and residual.

A family is a row, keyed by `config.model_type`. Paths to stacks start at the base model; all paths in a `Block` start at the
block. A site is the input (`in:`) or output (`out:`) of a module; `a + b` is the sum of two. Alternatives are tried in order: each
block gets the first one whose modules exist and whose `when` matches the config. A model that is not in the table is discovered
(`discovery.py`), which gives a row of the same kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Power:
    """A number from the config, raised to a power."""

    attribute: str
    exponent: float = 1.0


@dataclass(frozen=True)
class Dense:
    """Keys and values as projections: `key` (and `gate`) give the coefficients, `value` projects them back to the residual."""

    key: str
    value: str
    act: str  # a path, or `fn:NAME` for the function of that name in transformers' ACT2FN
    gate: str | None = None
    fused: Literal["gate-key", "key-gate"] | None = None  # one projection computes both, in this order
    weight: str | None = None  # a projection to one number, whose sigmoid multiplies the part's output

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(
            path
            for path in (self.key, self.value, self.gate, self.act, self.weight)
            if path and not path.startswith("fn:")
        )


@dataclass(frozen=True)
class Experts:
    """The experts of a mixture as stacked weights in one module, as in transformers 5."""

    path: str

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,)


@dataclass(frozen=True)
class Block:
    """Where one kind of block has its feed-forward layer, and where r, y and o = r + y are."""

    parts: tuple[Dense | Experts, ...]
    residual: str
    output: str = "out:."  # a post-norm block normalises o itself: then the input of that norm
    post: str | None = None  # the norm between the output projection and the residual
    update: str = ""  # where y is, before `scale`; empty: after the post-norm, else after the only part
    scale: float | Power = 1.0  # multiplies y
    when: Mapping[str, Any] = field(default_factory=dict)

    @property
    def update_site(self) -> str:
        only = self.parts[0]
        return self.update or f"out:{self.post or (only.value if isinstance(only, Dense) else only.path)}"

    @property
    def paths(self) -> tuple[str, ...]:
        sites = " + ".join((self.residual, self.output, self.update_site))
        from_sites = tuple(site.partition(":")[2] for site in sites.split(" + "))
        return (*(path for part in self.parts for path in part.paths), *from_sites)


@dataclass(frozen=True)
class Top:
    """The steps from the last output to the logits, around the unembedding; paths start at the base model, else at the model."""

    steps: tuple[str, ...]
    scale: float | Power = 1.0  # multiplies the logits
    cap: str | None = None  # the config attribute for c in c·tanh(logits / c)
    bias: str | None = None  # a buffer added to the logits
    when: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One row of the table."""

    stacks: tuple[str, ...]
    blocks: tuple[Block, ...]
    tops: tuple[Top, ...]
    # Config attributes that change what the FF layer computes, with the only supported values; others are refused.
    only: Mapping[str, Any] = field(default_factory=dict)
    in_order: bool = False  # `blocks` has one layout per block, in order
    positions_after_pad: bool = False  # the first token's position is the padding id + 1


_SWIGLU = Dense(gate="mlp.gate_proj", key="mlp.up_proj", value="mlp.down_proj", act="mlp.act_fn")
_AFTER_ATTENTION = "in:post_attention_layernorm"
_FINAL_NORM = (Top(("norm",)),)

_LLAMA = Family(("layers",), (Block((_SWIGLU,), residual=_AFTER_ATTENTION),), _FINAL_NORM)
_GPT2 = Family(
    ("h",),
    (Block((Dense(key="mlp.c_fc", value="mlp.c_proj", act="mlp.act"),), residual="in:ln_2"),),
    (Top(("ln_f",)),),
)
_GEMMA2_BLOCK = Block((_SWIGLU,), residual="in:pre_feedforward_layernorm", post="post_feedforward_layernorm")
_GEMMA2_TOP = Top(("norm",), cap="final_logit_softcapping")
_MIXTURE = Family(
    ("layers",),
    (
        Block((Experts("mlp.experts"),), residual=_AFTER_ATTENTION),
        Block((_SWIGLU,), residual=_AFTER_ATTENTION),  # some mixtures have dense layers among the sparse ones
    ),
    _FINAL_NORM,
)
_FC = Dense(key="fc1", value="fc2", act="activation_fn")
_BERT_BLOCK = Block(
    (Dense(key="intermediate.dense", value="output.dense", act="intermediate.intermediate_act_fn"),),
    residual="in:intermediate",
    output="in:output.LayerNorm",
)
_NOT_CHUNKED = {"chunk_size_feed_forward": 0}  # in chunks, the FF layer runs several times per pass
_4H = Dense(key="mlp.dense_h_to_4h", value="mlp.dense_4h_to_h", act="mlp.act")
_T5_FF = "layer.-1.DenseReluDense"

FAMILIES: dict[str, Family] = {
    "gpt2": _GPT2,
    "gpt_neo": _GPT2,
    "gptj": Family(
        ("h",),
        (Block((Dense(key="mlp.fc_in", value="mlp.fc_out", act="mlp.act"),), residual="in:. + out:attn"),),
        (Top(("ln_f",)),),
    ),
    "gpt_neox": Family(
        ("layers",),
        (
            Block((_4H,), residual="in:. + out:attention", when={"use_parallel_residual": True}),
            Block((_4H,), residual=_AFTER_ATTENTION),
        ),
        (Top(("final_layer_norm",)),),
    ),
    "opt": Family(
        ("decoder.layers",),
        (
            Block((_FC,), residual="in:final_layer_norm", when={"do_layer_norm_before": True}),
            Block((_FC,), residual="in:fc1", output="in:final_layer_norm"),
        ),
        (
            Top(("decoder.final_layer_norm", "decoder.project_out"), when={"do_layer_norm_before": True}),
            Top(("decoder.layers.-1.final_layer_norm", "decoder.project_out")),
        ),
    ),
    "adaptive_lm": Family(
        ("layers",),
        (
            Block((_FC,), residual="in:final_layer_norm", when={"norm_before": True}),
            Block((_FC,), residual="in:fc1", output="in:final_layer_norm"),
        ),
        (
            Top(("layer_norm", "project_out_dim"), when={"norm_before": True}),
            Top(("layers.-1.final_layer_norm", "project_out_dim")),
        ),
    ),
    "bloom": Family(
        ("h",),
        (
            Block(
                (Dense(key="mlp.dense_h_to_4h", value="mlp.dense_4h_to_h", act="mlp.gelu_impl"),),
                residual="out:post_attention_layernorm",
                when={"apply_residual_connection_post_layernorm": True},
            ),
            Block(
                (Dense(key="mlp.dense_h_to_4h", value="mlp.dense_4h_to_h", act="mlp.gelu_impl"),),
                residual=_AFTER_ATTENTION,
            ),
        ),
        (Top(("ln_f",)),),
        only={
            "slow_but_exact": False
        },  # otherwise it computes the output projection slice by slice, without calling it
    ),
    "falcon": Family(
        ("h",),
        (
            Block((_4H,), residual="in:. + out:self_attention", when={"new_decoder_architecture": True}),
            Block((_4H,), residual="in:. + out:self_attention", when={"parallel_attn": True}),
            Block((_4H,), residual=_AFTER_ATTENTION),
        ),
        (Top(("ln_f",)),),
    ),
    "phi": Family(
        ("layers",),
        (
            Block(
                (Dense(key="mlp.fc1", value="mlp.fc2", act="mlp.activation_fn"),),
                residual="in:. + out:self_attn",
            ),
        ),
        (Top(("final_layernorm",)),),
    ),
    "phi3": Family(
        ("layers",),
        (
            Block(
                (Dense(key="mlp.gate_up_proj", value="mlp.down_proj", act="mlp.activation_fn", fused="gate-key"),),
                residual=_AFTER_ATTENTION,
            ),
        ),
        _FINAL_NORM,
    ),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
    "gemma": _LLAMA,
    "olmo": _LLAMA,
    "gemma2": Family(("layers",), (_GEMMA2_BLOCK,), (_GEMMA2_TOP,)),
    "gemma3_text": Family(("layers",), (_GEMMA2_BLOCK,), (_GEMMA2_TOP,)),
    "gemma3": Family(("language_model.layers",), (_GEMMA2_BLOCK,), (Top(("language_model.norm",)),)),
    "olmo2": Family(
        ("layers",), (Block((_SWIGLU,), residual="in:mlp", post="post_feedforward_layernorm"),), _FINAL_NORM
    ),
    "granite": Family(
        ("layers",),
        (Block((_SWIGLU,), residual=_AFTER_ATTENTION, scale=Power("residual_multiplier")),),
        (Top(("norm",), scale=Power("logits_scaling", -1.0)),),
    ),
    "mixtral": _MIXTURE,
    "qwen3_moe": _MIXTURE,
    "olmoe": _MIXTURE,
    "gpt_oss": _MIXTURE,
    "bert": Family(
        ("encoder.layer",),
        (_BERT_BLOCK,),
        (
            Top(
                (
                    "encoder.layer.-1.output.LayerNorm",
                    "cls.predictions.transform.dense",
                    "cls.predictions.transform.transform_act_fn",
                    "cls.predictions.transform.LayerNorm",
                )
            ),
        ),
        only=_NOT_CHUNKED,
    ),
    "roberta": Family(
        ("encoder.layer",),
        (_BERT_BLOCK,),
        (Top(("encoder.layer.-1.output.LayerNorm", "lm_head.dense", "fn:gelu", "lm_head.layer_norm")),),
        only=_NOT_CHUNKED,
        positions_after_pad=True,
    ),
    "distilbert": Family(
        ("transformer.layer",),
        (
            Block(
                (Dense(key="ffn.lin1", value="ffn.lin2", act="ffn.activation"),),
                residual="in:ffn",
                output="in:output_layer_norm",
            ),
        ),
        (
            Top(
                ("transformer.layer.-1.output_layer_norm", "vocab_transform", "activation", "vocab_layer_norm"),
            ),
        ),
        only=_NOT_CHUNKED,
    ),
    "modernbert": Family(
        ("layers",),
        (
            Block(
                (Dense(key="mlp.Wi", value="mlp.Wo", act="mlp.act", fused="gate-key"),),
                residual="in:mlp_norm",
            ),
        ),
        (Top(("final_norm", "head.dense", "head.act", "head.norm")),),
    ),
    "t5": Family(
        ("encoder.block", "decoder.block"),
        (
            Block(
                (Dense(gate=f"{_T5_FF}.wi_0", key=f"{_T5_FF}.wi_1", value=f"{_T5_FF}.wo", act=f"{_T5_FF}.act"),),
                residual="in:layer.-1.layer_norm",
            ),
            Block(
                (Dense(key=f"{_T5_FF}.wi", value=f"{_T5_FF}.wo", act=f"{_T5_FF}.act"),),
                residual="in:layer.-1.layer_norm",
            ),
        ),
        (
            Top(("decoder.final_layer_norm",), scale=Power("d_model", -0.5), when={"scale_decoder_outputs": True}),
            Top(("decoder.final_layer_norm",)),
        ),
    ),
    "bart": Family(
        ("encoder.layers", "decoder.layers"),
        (Block((_FC,), residual="in:fc1", output="in:final_layer_norm"),),
        (Top(("decoder.layers.-1.final_layer_norm",), bias="final_logits_bias"),),
    ),
    "vit": Family(
        ("layers",),
        (
            Block(
                (Dense(key="mlp.fc1", value="mlp.fc2", act="mlp.activation_fn"),),
                residual="in:layernorm_after",
            ),
        ),
        (),
    ),
}
