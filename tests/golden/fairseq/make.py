"""Make the golden files: tiny checkpoints of fairseq's adaptive language model, and what fairseq computes on them.

Run by hand, with the source of fairseq 0.12.2 on PYTHONPATH (README.md says how). No test imports this file, because
fairseq is not installed with the project. Every expected number comes out of fairseq's own modules, after fairseq's
own loader has read the very file that is kept.
"""

import argparse
import collections
import copy
import dataclasses
import functools
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file


def fix_python() -> None:
    """Let fairseq 0.12.2 and hydra 1.0.7, written for Python 3.8 and torch 1, be imported and used unedited.

    Python 3.11 refuses a dataclass as a field's default unless it has a hash; numpy 2 dropped `np.float`; torch 2.6
    reads no pickled object unless it is asked to, and fairseq does not ask. The files read here are made here.
    """
    original = dataclasses.dataclass

    def with_hash(cls=None, /, **options):
        if cls is None:
            return functools.partial(with_hash, **options)
        decorated = original(cls, **options)
        if decorated.__hash__ is None:
            decorated.__hash__ = object.__hash__
        return decorated

    dataclasses.dataclass = with_hash
    np.float = float
    torch.load = functools.partial(torch.load, weights_only=False)


fix_python()

from fairseq import checkpoint_utils, meters, options, tasks  # noqa: E402
from fairseq.data import Dictionary  # noqa: E402
from fairseq.dataclass.utils import convert_namespace_to_omegaconf  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

PAD, EOS = 1, 2
NAMED = ["the", ",", ".", "=", "@-@", "of", "café", "naïve", "東京", "C#", "#", "#fairseq:overwrite", "Über", "it's"]
# White space inside a word: no line can spell such a word, but a reader that splits this file as str.split or
# str.splitlines does counts other rows than fairseq, which ends a row at a line feed, and its word at the last space.
NAMED += ["New\u00a0York", "next\u0085line", "line\u2028separator", "zero\u200bwidth", "ﬁne", "İ", "<unk>,", "3.5"]
LINES = ["the bab of café .", "the notaword of blorp", "the    bab", "the\tbab\t\tof", "the\u00a0bab", "the\u2003bab"]
LINES += ["the\u3000bab", "the\u0085bab", "the\x1cbab", "the\x1fbab", "the\u2028bab", "the\u200bbab", " the bab ", ""]
LINES += ["\t the\n", "the\r\nbab\n", " \u00a0 ", "<unk> </s> <s> <pad>", "a<unk>b <unk>, </s>x x<pad>", "<UNK> <S>"]
LINES += ["the @-@ = , .", "cafe\u0301 caf\u00e9", "nai\u0308ve naïve NAÏVE", "東京 東 京", "C# # #fairseq:overwrite"]
LINES += ["zero\u200bwidth zerowidth", "New\u00a0York next\u0085line line\u2028separator", "ﬁne fine İ i̇ Über über"]
LINES += ["The THE the", "bab bab", "it's it 's", "3.5 3 . 5", "madeupword0000 madeupword0001", "the\x00bab \ufeffthe"]

ADAPTIVE = "--adaptive-input --adaptive-input-cutoff {0} --adaptive-softmax-cutoff {0}"
COMMANDS = {
    "paper": f"--arch transformer_lm_wiki103 {ADAPTIVE.format('20,50')} --tokens-per-sample 64",
    "untied": "--arch transformer_lm_big --adaptive-input --adaptive-input-cutoff 15,33,52 --adaptive-input-factor 2.5"
    " --adaptive-softmax-cutoff 18,40 --adaptive-softmax-factor 2 --max-target-positions 40",
    "tied-weights": f"--arch transformer_lm_gpt2_tiny --activation-fn relu {ADAPTIVE.format('12,30,60')}"
    " --tie-adaptive-weights --adaptive-input-factor 3 --adaptive-softmax-factor 3 --tokens-per-sample 32",
    "old": f"--arch transformer_lm_wiki103 {ADAPTIVE.format('16,41')} --tokens-per-sample 48",
    "post-norm": f"--arch transformer_lm {ADAPTIVE.format('22,45')} --activation-fn gelu --no-scale-embedding"
    " --tie-adaptive-weights --tie-adaptive-proj --adaptive-input-factor 2 --adaptive-softmax-factor 2"
    " --decoder-input-dim 20 --decoder-output-dim 20",
    "projected": f"--arch transformer_lm_gpt {ADAPTIVE.format('30')} --activation-fn gelu_accurate --add-bos-token"
    " --decoder-input-dim 20 --decoder-output-dim 22 --adaptive-softmax-factor 3 --tokens-per-sample 24",
    "half": f"--arch transformer_lm_baevski_wiki103 {ADAPTIVE.format('20,45,71')} --tokens-per-sample 64 --fp16",
}


@dataclasses.dataclass
class Shape:
    """The size of one checkpoint, and how it is written down."""

    words: int
    size: str  # width, feed-forward width, layers, heads
    config: str  # "args", "dict", "omegaconf" or "old"
    half: bool = False
    overwrite: bool = False  # the dictionary repeats a word


SHAPES = {
    "paper": Shape(83, "32 48 3 4", "args"),
    "untied": Shape(71, "28 70 2 4", "dict", overwrite=True),
    "tied-weights": Shape(88, "36 64 2 6", "omegaconf"),
    "old": Shape(66, "24 60 2 2", "old"),
    "post-norm": Shape(63, "20 40 3 5", "dict"),
    "projected": Shape(79, "27 44 2 3", "dict"),
    "half": Shape(67, "40 56 2 8", "args", half=True),
}


def arguments(name: str) -> argparse.Namespace:
    """What fairseq-train would make of the command that trains this shape, the architecture's defaults filled in."""
    sizes = ("embed-dim", "ffn-embed-dim", "layers", "attention-heads")
    size = [f"--decoder-{key}={value}" for key, value in zip(sizes, SHAPES[name].size.split(), strict=True)]
    trainer = "--criterion adaptive_loss --optimizer nag --lr 0.0001 --lr-scheduler cosine"
    command = f"data-bin/golden --task language_modeling {trainer} {COMMANDS[name]}".split()
    return options.parse_args_and_arch(options.get_training_parser("language_modeling"), command + size)


def write_dictionary(shape: Shape, path: Path) -> None:
    """Words with falling counts, as fairseq-preprocess writes them; a repeated word takes the later row's id."""
    invented = ["".join(parts) for parts in itertools.product("bdgkm", "aeiou", "bnt")]
    words = [*invented[:6], *NAMED, *invented[6:]][: shape.words - 1]
    rows = [f"{word} {1000 - 7 * row}" for row, word in enumerate(words)]
    if shape.overwrite:
        rows[-9] = f"{words[0]} 9 #fairseq:overwrite"
    path.write_text("".join(f"{row}\n" for row in [*rows, "madeupword0000 0"]), encoding="utf-8", newline="\n")


def fill(model: torch.nn.Module, seed: int) -> None:
    """Random numbers in every parameter, tied ones once; nothing stays at a start value that could hide a mistake.

    The sizes keep log-probabilities small enough for float32 to hold them to well below 1e-5.
    """
    dice = torch.Generator().manual_seed(seed)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    norms = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.LayerNorm)}
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=dice)
        if id(parameter) in norms:
            noise = 1 + 0.3 * noise
        elif id(parameter) in embeddings or parameter.dim() == 1:
            noise = 0.25 * noise
        else:
            noise = noise * max(parameter.shape) ** -0.5
        parameter.data.copy_(noise)
    for name, buffer in model.named_buffers():
        if name.endswith("_float_tensor"):
            buffer.zero_()  # fairseq leaves it unset: two runs would differ


def old_weights(weights: dict, positions: torch.Tensor) -> dict:
    """The names of 2018 and 2019, which fairseq's upgrade_state_dict_named functions turn into today's."""
    old = collections.OrderedDict()
    for name, value in weights.items():
        if ".q_proj." in name:
            parts = [weights[name.replace("q_proj", which)] for which in ("q_proj", "k_proj", "v_proj")]
            old[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            name = name.replace("self_attn_layer_norm", "layer_norms.0").replace("final_layer_norm", "layer_norms.2")
            old[name] = value
    del old["decoder.embed_positions._float_tensor"]
    old |= {"decoder.embed_positions.weights": positions, "decoder.version": torch.tensor([2.0])}
    return old


def old_args(args: argparse.Namespace) -> argparse.Namespace:
    """The arguments as the training script of early 2019 had them: fewer, some by other names."""
    kept = "arch task criterion optimizer lr_scheduler seed lr momentum weight_decay clip_norm max_tokens max_update"
    kept += " tokens_per_sample sample_break_mode output_dictionary_size self_target future_target past_target dropout"
    kept += " attention_dropout adaptive_softmax_cutoff adaptive_softmax_dropout adaptive_softmax_factor adaptive_input"
    kept += " adaptive_input_cutoff adaptive_input_factor tie_adaptive_weights character_embeddings decoder_embed_dim"
    kept += " decoder_ffn_embed_dim decoder_layers decoder_attention_heads decoder_input_dim decoder_output_dim"
    kept += " decoder_normalize_before decoder_learned_pos no_token_positional_embeddings save_dir"
    kept += " share_decoder_input_output_embed"
    old = {name: getattr(args, name) for name in kept.split()}
    return argparse.Namespace(
        **old, data=["data-bin/golden"], raw_text=False, relu_dropout=0.1, no_tie_adaptive_proj=False
    )


def old_meters() -> dict:
    """Meter objects, which early checkpoints pickled whole, under the module name of their time."""
    by_name = collections.OrderedDict()
    for name, kind in (("train_loss", "AverageMeter"), ("wps", "TimeMeter"), ("train_wall", "StopwatchMeter")):
        cls = getattr(meters, kind)
        cls.__module__ = "fairseq.meters"
        by_name[name] = cls.__new__(cls)
        by_name[name].__dict__.update({"val": 3.5, "avg": 3.25, "sum": 13.0, "count": 4})
    return by_name


def state_of(shape: Shape, args: argparse.Namespace, model: torch.nn.Module) -> dict:
    """What Trainer.state_dict saves, or its forerunners saved; the configuration is kept in one of four ways."""
    weights = model.state_dict()
    history = {"criterion_name": "AdaptiveLoss", "optimizer_name": "FairseqNAG", "num_updates": 286000}
    history["lr_scheduler_state"] = {"best": 3.75}
    state = {"args": args, "model": weights, "optimizer_history": [history]}
    state["extra_state"] = {"train_iterator": {"epoch": 7, "iterations_in_epoch": 0}, "val_loss": 3.75}
    moments = {0: {"momentum_buffer": torch.ones(3)}}
    state["last_optimizer_state"] = {"state": moments, "param_groups": [{"lr": 1e-4, "params": [0]}]}
    if shape.config == "old":
        state["args"] = old_args(args)
        state["model"] = old_weights(weights, model.decoder.embed_positions.weights)
        state["extra_state"] = {"epoch": 7, "batch_offset": 0, "val_loss": 3.75, "train_meters": old_meters()}
    elif shape.config != "args":
        cfg = convert_namespace_to_omegaconf(args)
        plain = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
        state |= {
            "args": None,
            "cfg": cfg if shape.config == "omegaconf" else plain,
            "criterion": None,
            "task_state": {},
        }
    return state


def make_checkpoint(name: str, folder: Path, seed: int) -> None:
    """Build the model as fairseq-train would, fill it, and save it; old files have torch's format of before 1.6."""
    args = arguments(name)
    here = copy.deepcopy(args)
    here.data = str(folder)
    cfg = convert_namespace_to_omegaconf(here)
    model = tasks.setup_task(cfg.task).build_model(cfg.model)
    fill(model, seed)
    if SHAPES[name].half:
        model.half()  # as --fp16 does; tied parameters stay tied
    zipped = SHAPES[name].config != "old"
    torch.save(state_of(SHAPES[name], args, model), folder / "model.pt", _use_new_zipfile_serialization=zipped)


def load(folder: Path) -> tuple[torch.nn.Module, Dictionary]:
    """The model and dictionary that fairseq reads from a folder.

    fairseq 0.12.2 forgets `no_tie_adaptive_proj` on the way to its own configuration, so that it takes projections of
    old files for untied and then stops at their shapes. It is told what the old name meant.
    """
    overrides = {"data": str(folder)}
    if hasattr(torch.load(folder / "model.pt")["args"], "no_tie_adaptive_proj"):
        overrides["tie_adaptive_proj"] = True
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(folder / "model.pt")], overrides)
    return models[0].eval(), task.dictionary


def draw_tokens(model: torch.nn.Module, vocabulary: int, seed: int) -> torch.Tensor:
    """Two sequences of twelve that begin at </s> and hold both edges of every band; no padding."""
    cuts = {*model.decoder.embed_tokens.cutoff, *model.decoder.adaptive_softmax.cutoff}
    edges = sorted({0, 3} | {cut - 1 for cut in cuts} | {cut for cut in cuts if cut < vocabulary})
    dice = torch.Generator().manual_seed(seed)
    others = torch.randint(EOS, vocabulary, (22 - len(edges),), generator=dice)
    drawn = torch.cat([torch.tensor(edges), others])[torch.randperm(22, generator=dice)]
    return torch.cat([torch.full((2, 1), EOS), drawn.view(2, 11)], dim=1)


def watch(model: torch.nn.Module, seen: dict[str, torch.Tensor]) -> None:
    """Record what passes through each layer, turned from fairseq's position × batch to batch × position."""

    def note(name: str, value: torch.Tensor) -> None:
        seen[name] = value.transpose(0, 1).contiguous().clone()

    model.decoder.layers[0].register_forward_pre_hook(lambda _, inputs: note("embedded", inputs[0]))
    for i, layer in enumerate(model.decoder.layers):
        layer.fc1.register_forward_pre_hook(lambda _, inputs, i=i: note(f"ff_input.{i}", inputs[0]))
        layer.fc2.register_forward_pre_hook(lambda _, inputs, i=i: note(f"coefficients.{i}", inputs[0]))
        layer.fc2.register_forward_hook(lambda _, __, result, i=i: note(f"ff_output.{i}", result))
        layer.register_forward_hook(lambda _, __, result, i=i: note(f"output.{i}", result[0]))


@torch.no_grad()
def compute(folder: Path, seed: int) -> dict[str, torch.Tensor]:
    """What fairseq computes on the kept checkpoint: log-probabilities over all words, and every layer's parts."""
    model, dictionary = load(folder)
    tokens = draw_tokens(model, len(dictionary), seed)
    padded = draw_tokens(model, len(dictionary), seed + 1)[:, :9]
    padded[1, 5:] = PAD
    expected = {"tokens": tokens, "padded_tokens": padded.contiguous()}
    expected["padded_log_probs"] = model.get_normalized_probs(model(padded), log_probs=True).contiguous()
    watch(model, expected)
    expected["log_probs"] = model.get_normalized_probs(model(tokens), log_probs=True).contiguous()
    return expected


def encode(dictionary: Dictionary) -> list[dict]:
    """The ids that fairseq gives to lines whose white space, special words or letters are easily taken otherwise."""
    encoder = functools.partial(dictionary.encode_line, add_if_not_exist=False, append_eos=False)
    return [{"line": line, "ids": encoder(line).tolist()} for line in LINES]


def main(out: Path) -> None:
    """Every shape into its own folder; the folder is read again by fairseq before anything is computed."""
    torch.set_num_threads(1)
    for seed, (name, shape) in enumerate(SHAPES.items()):
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        write_dictionary(shape, folder / "dict.txt")
        make_checkpoint(name, folder, seed)
        save_file(compute(folder, 100 * seed), folder / "expected.safetensors")
        rows = ",\n".join(json.dumps(row) for row in encode(load(folder)[1]))
        (folder / "lines.json").write_text(f"[\n{rows}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
