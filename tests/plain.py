"""A plain reference computation of a model's feed-forward layers: transformers' modules by name, one text per pass.

Nothing here comes from ffscope. Every family states where its coefficients, residual and update are, and what its top does.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers as hf
from torch import Tensor
from torch.nn.functional import silu

import tiny

Map = Callable[[Tensor], Tensor]


class Pass:
    """What went into and came out of every module in one pass over one text; position × width."""

    @torch.no_grad()
    def __init__(self, model: Any, **ids: list[int]) -> None:
        self._into: dict[str, Any] = {}
        self._out: dict[str, Any] = {}
        hooks = [module.register_forward_hook(self._keeper(name)) for name, module in model.named_modules()]
        result = model(**{name: torch.tensor([some]) for name, some in ids.items()})
        for hook in hooks:
            hook.remove()
        self.logits = result.logits[0] if hasattr(result, "logits") else None

    def _keeper(self, name: str) -> Callable[..., None]:
        def keep(_module: Any, inputs: tuple[Any, ...], result: Any) -> None:
            self._into[name] = [some.clone() for some in inputs if isinstance(some, Tensor)]
            several = result if isinstance(result, tuple) else (result,)
            self._out[name] = [some.clone() for some in several if isinstance(some, Tensor)]

        return keep

    def into(self, path: str, number: int = 0) -> Tensor:
        return _rows(self._into[path][number])

    def out(self, path: str, number: int = 0) -> Tensor:
        return _rows(self._out[path][number])


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


Reading = Callable[[Pass], Tensor]


@dataclass
class Layer:
    values: Tensor  # memory × hidden, the rows of the output projection
    coefficients: Reading
    residual: Reading
    update: Reading
    written: Map = lambda values: values  # as the values reach the residual


@dataclass
class Family:
    layers: list[Layer]
    states: Map  # what the model does to its last output
    updates: Map  # the linear part of that
    raw: Map
    unembedding: Tensor  # vocabulary × hidden


def centred(norm: Any, v: Tensor) -> Tensor:
    """The linear part of a LayerNorm."""
    return (v - v.mean(-1, keepdim=True)) * norm.weight


def linear(model: Any, path: str, residual: Reading, update: str, written: Map = lambda values: values) -> Layer:
    """A layer whose output projection is an nn.Linear, and whose update comes out of a module as it is added."""
    values = model.get_submodule(path).weight.T
    return Layer(values, lambda p: p.into(path), residual, lambda p: p.out(update), written)


def opt(m: Any) -> Family:
    top = m.model.decoder.final_layer_norm
    return Family(
        [
            linear(m, f"{at}.fc2", lambda p, at=at: p.into(f"{at}.final_layer_norm"), f"{at}.fc2")
            for at in (f"model.decoder.layers.{layer}" for layer in range(m.config.num_hidden_layers))
        ],
        states=lambda h: m.lm_head(top(h)),
        updates=lambda v: centred(top, v) @ m.lm_head.weight.T,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def opt_post_norm(m: Any) -> Family:
    top, narrow = m.model.decoder.layers[2].final_layer_norm, m.model.decoder.project_out
    return Family(
        [
            linear(m, f"{at}.fc2", lambda p, at=at: p.into(f"{at}.fc1"), f"{at}.fc2")
            for at in ("model.decoder.layers.0", "model.decoder.layers.1", "model.decoder.layers.2")
        ],
        states=lambda h: m.lm_head(narrow(top(h))),
        updates=lambda v: centred(top, v) @ narrow.weight.T @ m.lm_head.weight.T,
        raw=lambda h: h @ narrow.weight.T @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def gpt2(m: Any) -> Family:
    def layer(at: str) -> Layer:
        return Layer(
            m.get_submodule(f"{at}.mlp.c_proj").weight,  # a Conv1D stores its matrix transposed
            lambda p: p.into(f"{at}.mlp.c_proj"),
            residual=lambda p: p.into(f"{at}.ln_2"),
            update=lambda p: p.out(f"{at}.mlp"),
        )

    top = m.transformer.ln_f
    return Family(
        [layer("transformer.h.0"), layer("transformer.h.1"), layer("transformer.h.2")],
        states=lambda h: m.lm_head(top(h)),
        updates=lambda v: centred(top, v) @ m.transformer.wte.weight.T,
        raw=lambda h: h @ m.transformer.wte.weight.T,
        unembedding=m.transformer.wte.weight,
    )


def llama(m: Any) -> Family:
    layers = [
        linear(m, f"{at}.mlp.down_proj", lambda p, at=at: p.into(f"{at}.post_attention_layernorm"), f"{at}.mlp")
        for at in ("model.layers.0", "model.layers.1", "model.layers.2")
    ]
    return replace(llama_top(m), layers=layers)


def llama_top(m: Any) -> Family:
    return Family(
        [],
        states=lambda h: m.lm_head(m.model.norm(h)),
        updates=lambda v: (v * m.model.norm.weight) @ m.lm_head.weight.T,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def gpt_neox(m: Any) -> Family:
    def layer(at: str) -> Layer:
        return linear(
            m,
            f"{at}.mlp.dense_4h_to_h",
            lambda p: p.into(f"{at}.input_layernorm") + p.out(f"{at}.attention"),
            update=f"{at}.mlp",
        )

    top, unembedding = m.gpt_neox.final_layer_norm, m.get_output_embeddings().weight
    return Family(
        [layer("gpt_neox.layers.0"), layer("gpt_neox.layers.1"), layer("gpt_neox.layers.2")],
        states=lambda h: top(h) @ unembedding.T,
        updates=lambda v: centred(top, v) @ unembedding.T,
        raw=lambda h: h @ unembedding.T,
        unembedding=unembedding,
    )


def gemma2(m: Any) -> Family:
    def layer(at: str) -> Layer:
        post = m.get_submodule(f"{at}.post_feedforward_layernorm")
        return linear(
            m,
            f"{at}.mlp.down_proj",
            lambda p: p.into(f"{at}.pre_feedforward_layernorm"),
            update=f"{at}.post_feedforward_layernorm",
            written=lambda values: values * (1 + post.weight),
        )

    return Family(
        [layer("model.layers.0"), layer("model.layers.1"), layer("model.layers.2")],
        states=lambda h: torch.tanh(m.lm_head(m.model.norm(h)) / 7) * 7,
        updates=lambda v: (v * (1 + m.model.norm.weight)) @ m.lm_head.weight.T,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def granite(m: Any) -> Family:
    def layer(at: str) -> Layer:
        return Layer(
            m.get_submodule(f"{at}.mlp.down_proj").weight.T,
            lambda p: p.into(f"{at}.mlp.down_proj"),
            residual=lambda p: p.into(f"{at}.post_attention_layernorm"),
            update=lambda p: 0.3 * p.out(f"{at}.mlp"),
            written=lambda values: 0.3 * values,
        )

    return Family(
        [layer("model.layers.0"), layer("model.layers.1"), layer("model.layers.2")],
        states=lambda h: m.lm_head(m.model.norm(h)) / 5,
        updates=lambda v: (v * m.model.norm.weight) @ m.lm_head.weight.T / 5,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def mixtral(m: Any) -> Family:
    def layer(at: str) -> Layer:
        experts = m.get_submodule(f"{at}.mlp.experts")
        return Layer(
            torch.cat([experts.down_proj[expert].T for expert in range(5)]),
            lambda p: routed(p, at, experts, size=20),
            residual=lambda p: p.into(f"{at}.post_attention_layernorm"),
            update=lambda p: p.out(f"{at}.mlp"),
        )

    return replace(llama_top(m), layers=[layer("model.layers.0"), layer("model.layers.1"), layer("model.layers.2")])


def qwen2_moe(m: Any) -> Family:
    """With a shared expert after the others, which has its own weight."""

    def layer(at: str) -> Layer:
        experts, shared = m.get_submodule(f"{at}.mlp.experts"), m.get_submodule(f"{at}.mlp.shared_expert")

        def weighed(p: Pass) -> Tensor:
            return torch.sigmoid(p.out(f"{at}.mlp.shared_expert_gate")) * p.into(f"{at}.mlp.shared_expert.down_proj")

        return Layer(
            torch.cat([*(experts.down_proj[expert].T for expert in range(5)), shared.down_proj.weight.T]),
            lambda p: torch.cat([routed(p, at, experts, size=16), weighed(p)], -1),
            residual=lambda p: p.into(f"{at}.post_attention_layernorm"),
            update=lambda p: p.out(f"{at}.mlp"),
        )

    return replace(llama_top(m), layers=[layer("model.layers.0"), layer("model.layers.1"), layer("model.layers.2")])


def routed(p: Pass, at: str, experts: Any, size: int) -> Tensor:
    """The coefficients of five experts side by side: position × memory, 0 where a token is not routed."""
    inputs, weights, chosen = p.into(f"{at}.mlp.experts"), p.out(f"{at}.mlp.gate", 1), p.out(f"{at}.mlp.gate", 2)
    coefficients = torch.zeros(len(inputs), 5, size)
    for position, x in enumerate(inputs):
        for expert, weight in zip(chosen[position].tolist(), weights[position], strict=True):
            gate, up = (experts.gate_up_proj[expert] @ x).split(size)
            coefficients[position, expert] = weight * silu(gate) * up
    return coefficients.flatten(1)


def bert(m: Any) -> Family:
    head, top = m.cls.predictions, m.bert.encoder.layer[2].output.LayerNorm
    return Family(
        bert_layers(m, "bert."),
        states=lambda h: head(top(h)),
        updates=lambda v: (
            centred(head.transform.LayerNorm, centred(top, v) @ head.transform.dense.weight.T) @ head.decoder.weight.T
        ),
        raw=lambda h: h @ head.decoder.weight.T,
        unembedding=head.decoder.weight,
    )


def bert_layers(m: Any, before: str) -> list[Layer]:
    return [
        linear(m, f"{at}.output.dense", lambda p, at=at: p.into(f"{at}.intermediate.dense"), f"{at}.output.dense")
        for at in (f"{before}encoder.layer.0", f"{before}encoder.layer.1", f"{before}encoder.layer.2")
    ]


def t5(m: Any) -> Family:
    def layer(at: str) -> Layer:
        ff = f"{at}.DenseReluDense"
        return linear(m, f"{ff}.wo", lambda p: p.into(f"{at}.layer_norm"), update=ff)

    norm = m.decoder.final_layer_norm
    encoder = [layer("encoder.block.0.layer.1"), layer("encoder.block.1.layer.1"), layer("encoder.block.2.layer.1")]
    decoder = [layer("decoder.block.0.layer.2"), layer("decoder.block.1.layer.2")]
    return Family(
        encoder + decoder,
        states=lambda h: m.lm_head(norm(h) * 12**-0.5),
        updates=lambda v: (v * norm.weight) @ m.lm_head.weight.T * 12**-0.5,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def bart(m: Any) -> Family:
    def layer(at: str) -> Layer:
        return linear(m, f"{at}.fc2", lambda p: p.into(f"{at}.fc1"), update=f"{at}.fc2")

    norm = m.model.decoder.layers[1].final_layer_norm
    encoder = [layer("model.encoder.layers.0"), layer("model.encoder.layers.1"), layer("model.encoder.layers.2")]
    decoder = [layer("model.decoder.layers.0"), layer("model.decoder.layers.1")]
    return Family(
        encoder + decoder,
        states=lambda h: m.lm_head(norm(h)) + m.final_logits_bias[0],
        updates=lambda v: centred(norm, v) @ m.lm_head.weight.T,
        raw=lambda h: h @ m.lm_head.weight.T,
        unembedding=m.lm_head.weight,
    )


def adaptive_lm(m: Any) -> Family:
    """Tied: words are unembedded with their embeddings; band 0 without its projection, the others with theirs, transposed."""
    bands = [(band[0].weight, band[1].weight) for band in m.embed_tokens.embeddings]
    tails = [(widening.T, rows) for rows, widening in bands[1:]]
    return _adaptive(m, bands[0][0], m.adaptive_softmax.head.class_proj.weight, tails, lambda h: h, lambda v: v)


def adaptive_lm_untied(m: Any) -> Family:
    """The head's rows are words, then classes; a final norm and a narrower output come before them."""
    head, tails = m.adaptive_softmax.head.weight, [(t["0"].weight, t["2"].weight) for t in m.adaptive_softmax.tail]
    words, classes = head[: -len(tails)], head[-len(tails) :]
    narrow = m.project_out_dim.weight
    family = _adaptive(
        m, words, classes, tails, lambda h: m.layer_norm(h) @ narrow.T, lambda v: centred(m.layer_norm, v) @ narrow.T
    )
    return replace(family, raw=lambda h: h @ narrow.T @ family.unembedding.T)


def _adaptive(m: Any, words: Tensor, classes: Tensor, tails: list[Any], top: Map, linear_top: Map) -> Family:
    def log_probs(x: Tensor) -> Tensor:
        head = torch.log_softmax(torch.cat([x @ words.T, x @ classes.T], -1), -1)
        parts = [head[..., : len(words)]]
        for i, (narrowing, rows) in enumerate(tails):
            parts.append(head[..., len(words) + i, None] + torch.log_softmax(x @ narrowing.T @ rows.T, -1))
        return torch.cat(parts, -1)

    unembedding = torch.cat([words, *(rows @ narrowing for narrowing, rows in tails)])
    return Family(
        [
            linear(m, f"{at}.fc2", lambda p, at=at: p.into(f"{at}.final_layer_norm"), f"{at}.fc2")
            for at in ("layers.0", "layers.1", "layers.2")
        ],
        states=lambda h: log_probs(top(h)),
        updates=lambda v: log_probs(linear_top(v)),
        raw=lambda h: h @ unembedding.T,
        unembedding=unembedding,
    )


FAMILIES: dict[str, Callable[[Any], Family]] = {
    "adaptive_lm": adaptive_lm,
    "adaptive_lm untied": adaptive_lm_untied,
    "opt": opt,
    "opt post-norm": opt_post_norm,
    "gpt2": gpt2,
    "llama": llama,
    "gpt_neox": gpt_neox,
    "gemma2": gemma2,
    "granite": granite,
    "mixtral": mixtral,
    "qwen2_moe": qwen2_moe,
    "bert": bert,
    "t5": t5,
    "bart": bart,
}
_NOT_IN_THE_TABLE = {
    "qwen2_moe": (
        hf.Qwen2MoeForCausalLM,
        hf.Qwen2MoeConfig,
        {**tiny._MOE, "num_experts": 5, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24},
    )
}
DECODER_START = {"t5": 0, "bart": 3}
BOTH_WAYS = ("bert", "t5", "bart")  # a position sees what comes after it


def make(name: str) -> Any:
    """A tiny model of the family."""
    return tiny.build(*_NOT_IN_THE_TABLE[name]) if name in _NOT_IN_THE_TABLE else tiny.make(name)


class Plain:
    """One family's model, run on prefixes of sentences."""

    def __init__(self, name: str, model: Any, *, lens: str, bos: int | None) -> None:
        self.name, self.model, self.bos = name, model, bos
        self.family = FAMILIES[name](model)
        self.layers = self.family.layers
        self.states = self.family.states if lens == "norm" else self.family.raw
        self.updates = self.family.updates if lens == "norm" else self.family.raw

    def run(self, tokens: list[int]) -> Pass:
        """One pass over one text."""
        ids = {"input_ids": tokens if self.bos is None else [self.bos, *tokens]}
        if self.name in DECODER_START:
            ids["decoder_input_ids"] = [DECODER_START[self.name], *tokens]
        return Pass(self.model, **ids)

    def at(self, tokens: list[int], position: int) -> "Place":
        """The numbers of the model at a prefix: run alone, or in its sentence where attention is bidirectional."""
        if self.name not in BOTH_WAYS:
            tokens = tokens[: position + 1]
        return Place(self, self.run(tokens), position - len(tokens))

    @torch.no_grad()
    def value_logits(self, layer: int, sign: int = 1) -> list[list[float]]:
        """The logits of a layer's values, or of their opposites, one value after the other."""
        written = self.layers[layer].written(self.layers[layer].values)
        return [self.updates(sign * value).tolist() for value in written]


class Place:
    """The numbers of one pass at one position, layer by layer; positions count from the end: the last n are the sentence's."""

    @torch.no_grad()
    def __init__(self, plain: Plain, forward_pass: Pass, position: int) -> None:
        self.coefficients = [layer.coefficients(forward_pass)[position] for layer in plain.layers]
        residual = [layer.residual(forward_pass)[position] for layer in plain.layers]
        update = [layer.update(forward_pass)[position] for layer in plain.layers]
        self.residual = [plain.states(r).tolist() for r in residual]
        self.update = [plain.updates(y).tolist() for y in update]
        self.output = [plain.states(r + y).tolist() for r, y in zip(residual, update, strict=True)]
        self.logits = forward_pass.logits[position].tolist()
        # Checks this file's description of the family: the last layer's output gives the model's own logits.
        own = plain.family.states(residual[-1] + update[-1])
        torch.testing.assert_close(own, forward_pass.logits[position], rtol=1e-4, atol=1e-4)


def ranking(logits: list[float]) -> list[int]:
    """Tokens from the highest to the lowest; ties by the lower id."""
    return sorted(range(len(logits)), key=lambda token: (-logits[token], token))


NEAR = 1e-5


class Account:
    """Compares integers; two logits within `NEAR` of each other may change places, and that is counted."""

    def __init__(self) -> None:
        self.compared = self.excused = 0

    def same(self, got: Any, expected: Any, *, excuse: bool) -> None:
        self.compared += 1
        if got != expected:
            assert excuse, f"{got} is not {expected}"
            self.excused += 1

    def tokens(self, got: list[int], logits: list[float]) -> None:
        """The highest tokens, in order."""
        assert len(set(got)) == len(got)
        for token, other in zip(got, ranking(logits), strict=False):
            self.same(token, other, excuse=abs(logits[token] - logits[other]) < NEAR)

    def token(self, got: int, logits: list[float]) -> None:
        self.tokens([got], logits)

    def rank(self, got: int, token: int, logits: list[float]) -> None:
        near = sum(abs(logit - logits[token]) < NEAR for logit in logits) - 1
        expected = 1 + ranking(logits).index(token)
        self.same(got, expected, excuse=abs(got - expected) <= near)

    def count(self, got: int, expected: int, *, unsure: int) -> None:
        """A count of which up to `unsure` are within rounding."""
        self.same(got, expected, excuse=abs(got - expected) <= unsure)

    def is_strict(self) -> bool:
        return self.compared > 0 and self.excused <= 0.002 * self.compared
