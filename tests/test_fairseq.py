"""fairseq's checkpoints, compared with what fairseq itself computes on them (golden/fairseq), and damaged or unsupported ones."""

import json
import os
import pickle
import shutil
import zipfile
from argparse import Namespace
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import ffscope
from ffscope.cli import app
from ffscope.errors import InputError, SourceError
from ffscope.models.check import check
from ffscope.models.fairseq.dictionary import make_tokenizer, read_words
from ffscope.models.fairseq.unpickling import Record, load_checkpoint
from ffscope.models.fingerprint import fingerprint
from ffscope.models.sources import convert, read_model

GOLDEN = Path(__file__).parent / "golden" / "fairseq"
SHAPES = sorted(folder.name for folder in GOLDEN.iterdir() if (folder / "model.pt").is_file())
EXACT = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module", params=SHAPES)
def shape(request):
    return request.param


@pytest.fixture(scope="module")
def model(shape):
    return ffscope.load(GOLDEN / shape, "cpu")


@pytest.fixture(scope="module")
def expected(shape):
    return load_file(GOLDEN / shape / "expected.safetensors")


def copy_of(shape, folder):
    shutil.copytree(GOLDEN / shape, folder, dirs_exist_ok=True)
    return folder


def resaved(folder, change, shape="paper"):
    """A copy of a checkpoint with something changed in it."""
    file = copy_of(shape, folder) / "model.pt"
    held = torch.load(file, weights_only=False)
    change(held)
    torch.save(held, file)
    return folder


def refusal(source, **options):
    with pytest.raises(SourceError) as caught:
        ffscope.load(source, "cpu", **options)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_there_are_all_shapes():
    assert SHAPES == ["half", "old", "paper", "post-norm", "projected", "tied-weights", "untied"]


def test_log_probabilities_are_fairseqs(model, expected):
    trace = model.trace({"input_ids": expected["tokens"]})
    torch.testing.assert_close(trace.logits, expected["log_probs"], **EXACT)


def test_every_layer_is_fairseqs(model, expected):
    trace = model.trace({"input_ids": expected["tokens"]})
    post_norm = not model.model.config.norm_before
    for layer in range(model.layers):
        x = trace.residual[layer] if post_norm else model.layer(layer).block.final_layer_norm(trace.residual[layer])
        torch.testing.assert_close(x, expected[f"ff_input.{layer}"], **EXACT)
        torch.testing.assert_close(trace.coefficients[layer], expected[f"coefficients.{layer}"], **EXACT)
        torch.testing.assert_close(trace.update[layer], expected[f"ff_output.{layer}"], **EXACT)
        output = trace.output[layer]
        after = model.layer(layer).block.final_layer_norm(output) if post_norm else output
        torch.testing.assert_close(after, expected[f"output.{layer}"], **EXACT)


@torch.no_grad()
def test_padding_is_seen_as_fairseq_sees_it(model, expected):
    ids = expected["padded_tokens"]
    present = ids != 1
    logits = model.model(ids).logits
    torch.testing.assert_close(logits, expected["padded_log_probs"], **EXACT)  # at the padding too
    masked = model.model(ids.masked_fill(~present, 4), attention_mask=present.long()).logits
    torch.testing.assert_close(masked[present], logits[present], **EXACT)
    before = model.model(torch.cat([torch.ones_like(ids), ids], 1)).logits  # padding sees only padding
    assert before.isfinite().all()
    torch.testing.assert_close(before[:, ids.shape[1] :][present], logits[present], **EXACT)


def test_words_get_fairseqs_ids(shape, model):
    lines = json.loads((GOLDEN / shape / "lines.json").read_text(encoding="utf-8"))
    assert len(lines) > 15
    for row in lines:
        assert model.tokenizer.encode(row["line"], add_special_tokens=False) == row["ids"], row["line"]


def test_every_identity_holds(shape):
    plain = read_model(str(GOLDEN / shape), device="cpu", dtype="float32")
    assert all(finding.holds for finding in check(ffscope.read(plain)))


def test_the_shape_is_read_from_the_checkpoint():
    def config(name):
        return ffscope.load(GOLDEN / name, "cpu").model.config

    paper, untied, old = config("paper"), config("untied"), config("old")
    assert (paper.input_cutoffs, paper.input_widths) == ([20, 50, 87], [32, 8, 2])
    assert (paper.tie_adaptive_weights, paper.tie_adaptive_proj, paper.final_norm) == (True, True, False)
    assert (untied.input_cutoffs, untied.softmax_cutoffs) == ([15, 33, 52, 75], [18, 40, 75])
    assert (untied.input_widths, untied.softmax_widths) == ([28, 11, 4, 1], [28, 14, 7])
    assert (untied.tie_adaptive_weights, untied.final_norm) == (False, True)
    assert (old.tie_adaptive_proj, old.final_norm, old.max_position_embeddings) == (True, False, 48)
    assert config("half").input_cutoffs == [20, 45, 71]
    assert config("post-norm").norm_before is False
    assert config("post-norm").activation_function == "gelu"
    assert config("projected").softmax_widths == [22, 7]


def test_text_is_put_behind_the_symbol_that_inference_puts_it_behind():
    paper, projected = (ffscope.load(GOLDEN / name, "cpu") for name in ("paper", "projected"))
    assert paper.trace("the").tokens == [["</s>", "the"]]
    assert projected.trace("the").tokens == [["<s>", "the"]]  # --add-bos-token


def test_a_checkpoint_is_read_in_its_own_precision_where_that_is_asked(tmp_path):
    converted = convert(str(GOLDEN / "half"), tmp_path / "half")
    assert converted.dtype == torch.float16
    assert read_model(str(GOLDEN / "half"), device="cpu", dtype="float32").dtype == torch.float32


def test_what_is_converted_loads_without_the_checkpoint(shape, model, expected, tmp_path):
    convert(str(GOLDEN / shape), tmp_path / "made")
    names = {file.name for file in (tmp_path / "made").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert not any(name.endswith((".pt", ".bin")) for name in names)
    again = ffscope.load(tmp_path / "made", "cpu")
    assert torch.equal(again.trace(expected["tokens"]).logits, model.trace(expected["tokens"]).logits)
    assert fingerprint(again.model) == fingerprint(model.model)
    for row in json.loads((GOLDEN / shape / "lines.json").read_text(encoding="utf-8")):
        assert again.tokenizer.encode(row["line"], add_special_tokens=False) == row["ids"]
    assert again.trace("the").tokens == model.trace("the").tokens


def test_the_command_converts_and_refuses_to_write_over_something(tmp_path):
    arguments = ["convert", str(GOLDEN / "paper"), "--out", str(tmp_path / "made")]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "made").iterdir()}
    again = CliRunner().invoke(app, arguments)
    assert again.exit_code != 0
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "made").iterdir()} == before
    assert [file.name for file in tmp_path.iterdir()] == ["made"]


def test_a_checkpoint_is_found_by_its_folder_or_by_its_file(tmp_path):
    folder = copy_of("paper", tmp_path / "one")
    os.rename(folder / "model.pt", folder / "checkpoint_best.pt")
    assert ffscope.load(folder, "cpu").layers == ffscope.load(folder / "checkpoint_best.pt", "cpu").layers == 3
    shutil.copy(folder / "checkpoint_best.pt", folder / "checkpoint_last.pt")
    assert "checkpoint_best.pt, checkpoint_last.pt" in refusal(folder)


# What can be wrong with a checkpoint.


@pytest.mark.parametrize("name", ["paper", "old"])
@pytest.mark.parametrize("part", [0.0, 0.002, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_reported(name, part, tmp_path):
    file = copy_of(name, tmp_path) / "model.pt"
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * part)])
    message = refusal(tmp_path)
    assert "model.pt" in message
    assert "Download it again" in message


def test_a_missing_dictionary_is_reported_and_not_needed_by_check(tmp_path):
    (copy_of("paper", tmp_path) / "dict.txt").unlink()
    assert "no dict.txt next to the checkpoint" in refusal(tmp_path)
    assert CliRunner().invoke(app, ["check", str(tmp_path)]).exit_code == 0


def test_a_dictionary_of_another_size_is_reported(tmp_path):
    file = copy_of("paper", tmp_path) / "dict.txt"
    lines = file.read_text(encoding="utf-8").split("\n")
    file.write_text("\n".join(lines[1:]), encoding="utf-8")
    assert "82 words, 86 with fairseq's 4 symbols; model.pt has embeddings for 87" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [("word", "Expected a word and its count"), ("", "Expected a word and its count"), ("the 5", "repeats 'the'")],
)
def test_a_damaged_dictionary_is_reported(line, message, tmp_path):
    file = copy_of("paper", tmp_path) / "dict.txt"
    file.write_text("the 9\n" + line + "\n", encoding="utf-8")
    assert message in refusal(tmp_path)
    file.write_bytes(b"\xff\xfe 3\n")
    assert "not UTF-8" in refusal(tmp_path)


class Evil:
    """Would create a file if unpickled."""

    def __init__(self, call, *args):
        self.call, self.args = call, args

    def __reduce__(self):
        return self.call, self.args


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("where", ["args", "model", "extra_state"])
@pytest.mark.parametrize(("call", "named"), [(os.system, "system"), (eval, "builtins.eval"), (open, "open")])
def test_a_pickle_that_would_run_something_is_refused_unopened(call, named, where, old, tmp_path):
    file = copy_of("paper", tmp_path) / "model.pt"
    held = torch.load(file, weights_only=False)
    trace = tmp_path / "ran"
    evil = Evil(call, *((f"open({str(trace)!r}, 'w')",) if call is eval else (str(trace), "w")[: 1 + (call is open)]))
    held[where] = {"x": evil, **(held[where] if where == "model" else {})}
    torch.save(held, file, _use_new_zipfile_serialization=not old)
    message = refusal(tmp_path)
    assert named in message
    assert "not opened" in message
    assert not trace.exists()


def test_names_of_fairseq_and_omegaconf_are_not_imported(tmp_path):
    """Even if a module of that name can be imported."""
    (tmp_path / "fairseq.py").write_text("raise SystemExit('imported')")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        held = load_checkpoint(GOLDEN / "old" / "model.pt")
    assert isinstance(held["args"], Record)


def test_other_protocols_and_other_files_are_refused(tmp_path):
    file = copy_of("paper", tmp_path) / "model.pt"
    held = torch.load(file, weights_only=False)
    torch.save(held, file, pickle_protocol=3)
    assert ffscope.load(tmp_path, "cpu").layers == 3
    torch.save(held, file, pickle_protocol=4)
    assert "pickled with protocol 4" in refusal(tmp_path)
    file.write_bytes(pickle.dumps(Evil(os.system, "true")))
    assert "torch.save" in refusal(tmp_path)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps(Evil(os.system, "true"), protocol=2))
    assert "not opened" in refusal(tmp_path)
    torch.save(OrderedDict(a=torch.ones(2)), file)
    assert "contains no model" in refusal(tmp_path)
    torch.save([1, 2], file)
    assert "contains no model" in refusal(tmp_path)


def test_missing_and_unsupported_arguments_are_reported(tmp_path):
    def without_arguments(held):
        held.update(args=None, cfg=None)

    assert "has no model arguments" in refusal(resaved(tmp_path / "1", without_arguments))
    message = refusal(resaved(tmp_path / "2", lambda held: setattr(held["args"], "decoder_learned_pos", True)))
    assert "decoder_learned_pos=True, which is not supported" in message
    assert "'swish'" in refusal(resaved(tmp_path / "3", lambda held: setattr(held["args"], "activation_fn", "swish")))
    long = refusal(resaved(tmp_path / "5", lambda held: setattr(held["args"], "activation_fn", "x\x1b" * 10_000)))
    assert len(long) < 1000
    assert "\x1b" not in long
    message = refusal(resaved(tmp_path / "4", lambda held: setattr(held["args"], "decoder_attention_heads", 5)))
    assert "divisor of its width 32" in message


def test_weights_that_do_not_fit_the_model_are_reported(tmp_path):
    name = "decoder.layers.1.fc2.weight"
    message = refusal(resaved(tmp_path / "1", lambda held: held["model"].pop(name)))
    assert "lacks 1 weights, such as layers.1.fc2.weight" in message
    message = refusal(
        resaved(tmp_path / "2", lambda held: held["model"].update({"decoder.layers.0.w_resid": torch.ones(3)}))
    )
    assert "that the model does not use, such as layers.0.w_resid" in message
    message = refusal(resaved(tmp_path / "3", lambda held: held["model"].update({name: torch.ones(32, 47)})))
    assert "(32, 47). Expected (32, 48)" in message
    message = refusal(
        resaved(tmp_path / "4", lambda held: held["model"].pop("decoder.embed_tokens.embeddings.0.0.weight"))
    )
    assert "no adaptive inputs" in message
    tied = "decoder.adaptive_softmax.head.word_proj.weight"
    message = refusal(resaved(tmp_path / "5", lambda held: held["model"].update({tied: held["model"][tied] + 1})))
    assert "but they differ" in message


def test_a_final_norm_of_an_early_version_is_left_out_as_fairseq_does(tmp_path):
    def early(held):
        held["model"]["decoder.version"] = torch.tensor([2.0])

    model = ffscope.load(resaved(tmp_path, early, "untied"), "cpu")
    assert model.model.config.final_norm is False
    assert model.model.layer_norm is None


def test_references_in_a_tree_are_followed(tmp_path):
    def refer(held):
        held["cfg"]["model"]["max_target_positions"] = "${task.tokens_per_sample}"
        held["cfg"]["task"]["tokens_per_sample"] = 33

    assert ffscope.load(resaved(tmp_path, refer, "untied"), "cpu").positions == 33


def test_a_namespace_wins_over_a_tree_as_in_fairseq(tmp_path):
    def both(held):
        held["args"] = Namespace(**{**held["cfg"]["model"], "arch": "transformer_lm_big", "decoder_attention_heads": 2})

    assert ffscope.load(resaved(tmp_path, both, "untied"), "cpu").model.config.num_attention_heads == 2


def test_a_repeated_word_has_the_later_id(tmp_path):
    (tmp_path / "dict.txt").write_text("a 5\nb 4\na 3 #fairseq:overwrite\n", encoding="utf-8")
    words = read_words(tmp_path / "dict.txt")
    tokenizer = make_tokenizer(words, bos="</s>")
    assert words[4:] == ["a", "b", "a"]
    assert tokenizer.encode("a b", add_special_tokens=False) == [6, 5]


# What else a file may hold.


def repacked(folder, packed, shape="untied"):
    """A checkpoint whose archive has some members deflated."""
    file = copy_of(shape, folder) / "model.pt"
    with zipfile.ZipFile(GOLDEN / shape / "model.pt") as held, zipfile.ZipFile(file, "w") as out:
        for member in held.infolist():
            kind = zipfile.ZIP_DEFLATED if packed(member.filename) else zipfile.ZIP_STORED
            out.writestr(member.filename, held.read(member), compress_type=kind)
    return folder


@pytest.mark.parametrize("packed", [lambda name: True, lambda name: name.endswith("data/3")])
def test_compressed_members_are_read(packed, tmp_path):
    expected = load_file(GOLDEN / "untied" / "expected.safetensors")
    trace = ffscope.load(repacked(tmp_path, packed), "cpu").trace({"input_ids": expected["tokens"]})
    torch.testing.assert_close(trace.logits, expected["log_probs"], **EXACT)


def test_a_corrupted_number_is_reported(tmp_path):
    file = copy_of("paper", tmp_path) / "model.pt"
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 0x40
    file.write_bytes(whole)
    assert "damaged" in refusal(tmp_path)


def test_a_config_tree_of_a_named_architecture_needs_every_argument(tmp_path):
    """fairseq takes the architecture's own defaults there, but others for a Namespace."""
    for number, name in enumerate(("decoder_attention_heads", "activation_fn")):
        folder = resaved(tmp_path / str(number), lambda held, name=name: held["cfg"]["model"].pop(name), "untied")
        assert f"has {name}=None" in refusal(folder)
    behind = {"_name": "transformer_lm", "decoder_normalize_before": False}
    folder = resaved(tmp_path / "plain", lambda held: held["cfg"]["model"].update(behind), "untied")
    assert "has a final norm, but also norms after" in refusal(folder)
    folder = resaved(tmp_path / "namespace", lambda held: vars(held["args"]).pop("activation_fn"))
    assert ffscope.load(folder, "cpu").model.config.activation_function == "relu"


def test_options_may_be_strings(tmp_path):
    def words(held):
        held["cfg"]["model"].update(no_scale_embedding="false", decoder_attention_heads="4", scale_fc="False")

    config = ffscope.load(resaved(tmp_path, words, "untied"), "cpu").model.config
    assert (config.scale_embedding, config.num_attention_heads) == (True, 4)


def test_options_that_act_at_inference_are_refused(tmp_path):
    folder = resaved(tmp_path, lambda held: setattr(held["args"], "quant_noise_scalar", 0.3))
    assert "quant_noise_scalar=0.3, which is not supported" in refusal(folder)


def test_a_symbol_in_the_dictionary_is_reported(tmp_path):
    file = copy_of("paper", tmp_path) / "dict.txt"
    lines = file.read_text(encoding="utf-8").split("\n")
    file.write_text("\n".join(["<unk> 5 #fairseq:overwrite", *lines[1:]]), encoding="utf-8")
    assert "'<unk>', which is one of fairseq's symbols" in refusal(tmp_path)


def test_a_small_file_that_expands_to_a_huge_one_is_refused_at_once(tmp_path):
    def laughs(held):
        nested = []
        for _ in range(45):
            nested = [nested, nested]
        held["args"].more = nested

    assert ffscope.load(resaved(tmp_path / "1", laughs), "cpu").layers == 3  # what is not needed is not expanded
    huge = torch.zeros(1).expand(40_000, 400_000)
    folder = resaved(tmp_path / "2", lambda held: held["model"].update({"decoder.layers.0.fc1.weight": huge}))
    assert "not a dense floating-point tensor" in refusal(folder)
    many = {f"decoder.layers.{layer}.fc1.weight": torch.ones(2, 2) for layer in range(3000)}
    assert "16 weights per layer" in refusal(resaved(tmp_path / "3", lambda held: held["model"].update(many)))
    folder = resaved(tmp_path / "4", lambda held: held.update(extra_state=[0.5] * 2_000_000))
    assert "more than 8 MiB besides its tensors" in refusal(folder)


def test_a_softmax_of_other_words_is_refused(tmp_path):
    def more(held):
        held["model"]["decoder.adaptive_softmax.head.weight"] = torch.ones(40, 28)

    assert "embeds 75 words and predicts 95" in refusal(resaved(tmp_path, more, "untied"))


def test_weights_or_arguments_of_wrong_types_are_reported(tmp_path):
    folder = resaved(tmp_path / "1", lambda held: held["model"].update({"decoder.layers.0.fc1.weight": torch.ones(3)}))
    assert "does not contain fairseq's adaptive language model" in refusal(folder)
    folder = resaved(
        tmp_path / "2", lambda held: held["model"].update({"decoder.layers.0.fc1.weight": torch.ones(3, 3).int()})
    )
    assert "not a dense floating-point tensor" in refusal(folder)
    assert "decoder_attention_heads=[4]" in refusal(
        resaved(tmp_path / "3", lambda held: setattr(held["args"], "decoder_attention_heads", [4]))
    )


def test_the_finest_precision_among_the_weights_is_the_checkpoints_own(tmp_path):
    def mixed(held):
        name = "decoder.embed_tokens.embeddings.0.0.weight"
        held["model"][name] = held["model"][name].half()

    folder = resaved(tmp_path / "mixed", mixed, "untied")
    assert convert(str(folder), tmp_path / "made").dtype == torch.float32
    models = [ffscope.load(where, "cpu").model for where in (folder, tmp_path / "made")]
    assert fingerprint(models[0]) == fingerprint(models[1])


def test_an_empty_folder_is_filled_and_stays_the_same_one(tmp_path, monkeypatch):
    (tmp_path / "made").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "made")
    monkeypatch.chdir(tmp_path / "made")
    convert(str(GOLDEN / "paper"), Path("."))
    assert Path("config.json").is_file()
    assert ffscope.load(tmp_path / "link", "cpu").layers == 3
    with pytest.raises(SourceError, match="already exists"):
        convert(str(GOLDEN / "paper"), tmp_path / "link")
    assert len({file.stat().st_mode for file in (tmp_path / "made").iterdir()}) == 1
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match="already exists"):
        convert(str(GOLDEN / "paper"), tmp_path / "file")


def test_a_few_positions_are_enough_for_a_proof(tmp_path):
    folder = resaved(tmp_path, lambda held: setattr(held["args"], "max_target_positions", 3))
    assert CliRunner().invoke(app, ["check", str(folder)]).exit_code == 0


def test_input_that_is_not_text_is_reported():
    with pytest.raises(InputError, match="half a character"):
        ffscope.load(GOLDEN / "paper", "cpu").trace("the \udcff")


def test_unknown_words_are_reported():
    softmax = ffscope.load(GOLDEN / "paper", "cpu").model.adaptive_softmax
    with pytest.raises(InputError, match="tokens from 0 to 86"):
        softmax.log_probs_of(torch.ones(1, 32), torch.tensor([[87]]))
    with pytest.raises(InputError, match="at least 1 word"):
        softmax.top(torch.ones(1, 32), 0)
