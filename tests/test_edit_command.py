"""`ffscope edit`: the command, the side effects it measures, and the command that the explorer shows."""

import json
import math
import shlex
import subprocess

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers as hf

import command_line
import ffscope
import tiny
from ffscope.edit_command import edit_command, quoted
from ffscope.editing.record import RECORD, Edited
from ffscope.errors import CoefficientError, LensError, StudyError
from ffscope.live.interventions import Interventions
from ffscope.live.model import Live
from ffscope.live.write_edit import how_to_write
from ffscope.models.loading import load, make_memory_model
from ffscope.models.saving import save_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from studies import write_corpus

BOS, TEXT = 2, "The cat sat"


def call(*arguments):
    result = command_line.ffscope(*map(str, arguments))
    return result.returncode, " ".join(f"{result.stdout} {result.stderr}".split())


@pytest.fixture(scope="module")
def studied(tokenizer, tmp_path_factory):
    """A model in a folder, loaded from it, and its study."""
    folder = tmp_path_factory.mktemp("studied")
    corpus = write_corpus(folder / "text.jsonl", documents=60)
    save_model(tiny.make("llama"), tokenizer, folder / "model")
    model = load(str(folder / "model"), device="cpu")
    study = triggers(
        model,
        CorpusOptions(str(corpus), max_tokens=10),
        folder / "study",
        search=SearchOptions(top=4, batch_tokens=20),
    )
    return model, study


def plain_predictions(folder, study, prefixes):
    """The losses and predicted tokens of a model at held-out prefixes, one sentence at a time."""
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    held = [row for row in pq.read_table(study.path("sentences.parquet")).to_pylist() if row["held_out"]]
    losses, predictions = [], []
    for number in np.random.default_rng([study.settings["seed"], *b"held out"]).permutation(len(held)):
        if len(losses) >= prefixes:
            break
        row = held[number]
        with torch.no_grad():
            log_probs = model(input_ids=torch.tensor([[BOS, *row["tokens"]]])).logits[0, 1:].log_softmax(-1)
        targets = [*row["tokens"][1:], row["next_token"]]
        losses += [-log_probs[at, target].item() for at, target in enumerate(targets) if target >= 0]
        predictions += [log_probs[at].argmax().item() for at, target in enumerate(targets) if target >= 0]
    return np.array(losses), np.array(predictions)


@pytest.mark.parametrize("written", [True, False])
def test_side_effects_are_those_of_plain_models(written, studied, tmp_path):
    model, study = studied
    token = int(model.trace(TEXT).logits[0, -1].argsort(descending=True)[1])
    options = {"study": study.folder, "prefixes": 60, "max_factor": 30}
    promotion = ffscope.promote(model, TEXT, f"#{token}", out=tmp_path / "edited" if written else None, **options)
    if not written:
        ffscope.edit(model, tmp_path / "edited", scale=promotion.factors)
    before, predicted = plain_predictions(model.source, study, 60)
    after, predicted_after = plain_predictions(tmp_path / "edited", study, 60)
    effects = promotion.side_effects
    assert effects.prefixes == len(before) >= 60
    assert effects.loss_before == pytest.approx(before.mean(), abs=1e-5)
    assert effects.loss_after == pytest.approx(after.mean(), abs=1e-5)
    assert abs(before.mean() - after.mean()) > 1e-4
    assert effects.perplexity_before == pytest.approx(math.exp(before.mean()), rel=1e-5)
    assert effects.perplexity_after == pytest.approx(math.exp(after.mean()), rel=1e-5)
    change = after - before
    width = 1.959964 * change.std(ddof=1) / len(change) ** 0.5
    assert effects.change_low == pytest.approx(change.mean() - width, abs=1e-5)
    assert effects.change_high == pytest.approx(change.mean() + width, abs=1e-5)
    changed = predicted != predicted_after
    assert effects.predictions_changed == pytest.approx(changed.mean())
    assert effects.became == pytest.approx((changed & (predicted_after == token)).mean())
    assert changed.any()
    if written:
        assert Edited.read(tmp_path / "edited")[0].side_effects == effects


def test_a_study_of_another_model_is_refused(studied, tokenizer, tmp_path):
    model, study = studied
    ffscope.edit(model, tmp_path / "edited", zero="L0.3", study=study, prefixes=30)
    other = load(str(tmp_path / "edited"), device="cpu")
    with pytest.raises(StudyError, match="is a study of another model: .*with fingerprint"):
        ffscope.edit(other, tmp_path / "twice", zero="L0.4", study=study)
    with pytest.raises(StudyError, match="is not a study"):
        ffscope.promote(model, TEXT, "a", study=tmp_path)
    bare = make_memory_model(tiny.make("llama").model, tokenizer)
    corpus = write_corpus(tmp_path / "text.jsonl", documents=60)
    of_bare = triggers(bare, CorpusOptions(str(corpus), max_tokens=10), tmp_path / "bare", search=SearchOptions(top=4))
    with pytest.raises(LensError, match="Without logits there is no loss. Leave out the study"):
        ffscope.edit(bare, tmp_path / "twice", zero="L0.4", study=of_bare)
    assert not (tmp_path / "twice").exists()


def test_an_edit_that_breaks_the_model_is_refused(studied, tmp_path, monkeypatch):
    from ffscope.editing import side_effects

    model, study = studied
    monkeypatch.setattr(side_effects, "perplexity_of", lambda loss: float("inf"))
    with pytest.raises(CoefficientError, match="Expected a finite loss on held-out text.*Choose smaller factors"):
        ffscope.edit(model, tmp_path / "edited", zero="L0.3", study=study, prefixes=30)
    assert not list(tmp_path.iterdir())


# --- the command ---


def test_the_command_writes_and_undoes_an_edit(studied, tmp_path):
    model, study = studied
    options = ["--zero", "L0.3,L2", "--scale", "L1.4=2", "--scale", "L1.5=-0.5", "--device", "cpu"]
    code, output = call("edit", model.source, *options, "--out", tmp_path / "edited", "--study", study.folder)
    assert code == 0, output
    assert "25 memories edited. Predictions are " in output
    assert "those of the source edited live" in output
    assert "Held-out perplexity" in output
    assert f"edit {tmp_path}/edited --undo --out NEW_FOLDER" in output
    edits = {"zero": ["L0.3", "L2"], "scale": {"L1.4": 2, "L1.5": -0.5}}
    with model.edit(**edits):
        expected = model.trace(TEXT).logits
    auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "edited").eval()
    with torch.no_grad():
        torch.testing.assert_close(auto(**model.encode(TEXT)).logits, expected, rtol=1e-5, atol=1e-5)
    assert hf.AutoTokenizer.from_pretrained(tmp_path / "edited").decode([7]) == model.tokenizer.decode([7])
    code, output = call("edit", tmp_path / "edited", "--undo", "--out", tmp_path / "undone")
    assert code == 0, output
    assert f"25 memories restored: the weights are those of {model.source}." in output
    undone, source = (tmp_path / "undone", tmp_path.__class__(model.source))
    assert (undone / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_the_command_prints_json(studied, tmp_path):
    model, _ = studied
    result = command_line.ffscope("edit", model.source, "--zero", "L0.3", "--out", tmp_path / "edited", "--json")
    assert json.loads(result.stdout) == json.loads((tmp_path / "edited" / RECORD).read_text())["edits"][0]
    result = command_line.ffscope("edit", tmp_path / "edited", "--undo", "--out", tmp_path / "undone", "--json")
    assert json.loads(result.stdout)["memories"] == [{"memory": "L0.3", "factor": 0.0, "addend": 0.0}]
    result = command_line.ffscope("edit", model.source, "--promote", TEXT, "a", "--json")
    promotion = json.loads(result.stdout)
    assert promotion["token"]["token"] == "a"
    assert result.returncode == (0 if promotion["works"] else 1)


def test_the_command_finds_an_edit_prints_and_writes_it(studied, tmp_path):
    model, _ = studied
    token = int(model.trace(TEXT).logits[0, -1].argsort(descending=True)[1])
    text = model.tokenizer.decode([token])
    wanted = ["edit", model.source, "--promote", TEXT, f"#{token}", "--max-factor", 30]
    code, output = call(*wanted)
    assert code == 0, output
    assert "before: the token has rank 2" in output
    assert "after: the token has rank 1" in output
    assert "Side effects were not measured: name a study" in output
    command = output[output.index("ffscope edit ") : output.index("--out edited") + len("--out edited")]
    words = shlex.split(command)
    words[-1] = tmp_path / "by-hand"
    assert call(*words[1:])[0] == 0
    code, output = call(*wanted, "--out", tmp_path / "edited")
    assert code == 0, output
    ids = model.encode(TEXT)
    for folder in ("by-hand", "edited"):
        auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / folder).eval()
        with torch.no_grad():
            assert auto(**ids).logits[0, -1].argmax() == token
    assert Edited.read(tmp_path / "edited")[0].promoted.token == text.replace(" ", "␣")
    code, output = call("edit", tmp_path / "edited", "--promote", TEXT, f"#{token}")
    assert code == 0, output
    assert "is the prediction already" in output
    last = int(model.trace(TEXT).logits[0, -1].argmin())
    code, output = call(
        "edit",
        model.source,
        "--promote",
        TEXT,
        f"#{last}",
        "--max-memories",
        1,
        "--max-factor",
        1,
        "--out",
        tmp_path / "n",
    )
    assert code == 1
    assert "closest: the token has rank" in output
    assert "No edit was found that makes" in output
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "Expected one thing to do: changes of memories"),
        (["--zero", "L0.3", "--undo", "--out", "x"], "Expected one thing to do"),
        (["--zero", "L0.3", "--promote", "a", "b"], "Expected one thing to do"),
        (["--zero", "L0.3"], "Expected a new folder for the model that is written: name one with --out"),
        (["--undo"], "Expected a new folder"),
        (["--zero", "12.3", "--out", "x"], "'12.3' is not a memory's name.*Did you mean 'L12.3'"),
        (
            ["--scale", "L0.3", "--out", "x"],
            "Expected a memory and a number for --scale, such as L0.3=2; found 'L0.3'",
        ),
        (["--scale", "L0.3=two", "--out", "x"], "such as L0.3=2; found 'L0.3=two'"),
        (["--set", "L0.3:2", "--out", "x"], "'L0.3:2' is not a memory's name"),
        (["--scale", "L0.3=nan", "--out", "x"], "Expected a finite number for L0.3, found nan"),
        (["--scale", "L0.3=1,L0.3=2", "--out", "x"], "L0.3 is changed twice by --scale"),
        (["--zero", "L7.1", "--out", "x"], "There is no layer 7"),
        (["--zero", "L0.3", "--out", "."], "already exists. Name a new folder"),
        (["--promote", "The", "ab"], "'ab' is not one token"),
        (["--set", "L0.3=1", "--out", "x"], "--set needs an output projection with a bias"),
        (["--undo", "--out", "x"], "has no ffscope-edit.json that can be read"),
    ],
)
def test_errors_say_what_to_do(options, message, tokenizer, tmp_path, monkeypatch):
    import re

    save_model(tiny.make("qwen2"), tokenizer, tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    code, output = call("edit", "model", *options, "--device" if "--undo" not in options else "--dtype", "auto")
    assert code == 2, output
    assert re.search(message, output), output
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_quantized_weights_are_refused(studied, tmp_path):
    import shutil

    folder = shutil.copytree(studied[0].source, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (folder / "config.json").write_text(json.dumps(config))
    code, output = call("edit", folder, "--zero", "L0.3", "--out", tmp_path / "edited")
    assert code == 2
    assert "are quantized, so keys and values cannot be read from them" in output


# --- the command that the explorer shows ---

HOSTILE = [
    "plain/model",
    "a b",
    'it\'s $(touch x) `touch x` \\ "q" ; & | > y',
    "é 文",
    "line\nbreak\ttab",
    "\x1b[201~\nrm -rf x\r",
    "\u202eright to left\u2066 \u00a0",
    "\udce9 bytes",
    "1\x00382"[:1] + "\x0138",  # an octal escape before digits
    "$'x'",
    "~/x",
    "",
]


@pytest.mark.parametrize("word", HOSTILE)
def test_words_reach_a_program_as_they_are(word):
    shown = quoted(word)
    assert shown.isprintable()
    # The word is the only argument of a program, whatever is in it.
    script = f'printf "%s|" {shown} end'
    result = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    assert result.stdout == word.encode(errors="surrogateescape") + b"|end|"


def test_a_command_names_every_change_exactly():
    command = edit_command("m", zero=["L1", "L0.2"], scale={"L2.3": 2.0, "L2.4": 0.1}, set={"L2.5": -1e-7}, out="o")
    assert command == "ffscope edit m --zero L1,L0.2 --scale L2.3=2,L2.4=0.1 --set L2.5=-1e-07 --out o"
    assert edit_command("-x", zero=["L1"]) == "ffscope edit ./-x --zero L1 --out edited"
    assert edit_command("", zero=["L1"]).startswith("ffscope edit MODEL ")


def test_a_hostile_source_stays_one_word(tokenizer):
    for source in HOSTILE[:-1]:
        model = make_memory_model(tiny.make("llama"), tokenizer, source=source)
        reading = Live(model, bos=True).prompt(TEXT, interventions=Interventions.parse(zero="L0.3"))
        assert reading.write.why is None
        script = f"set -- {reading.write.command}; printf '%s' \"$3\"; exit $#"
        result = subprocess.run(["bash", "-c", script.replace("~", "~")], capture_output=True)
        assert result.stdout == source.encode(errors="surrogateescape")
        assert result.returncode == 7


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("opt", {"set": "L0.3:1.5", "scale": "L1:0.5"}, "ffscope edit m --scale L1=0.5 --set L0.3=1.5 --out edited"),
        ("qwen2", {"set": "L0.3:1.5"}, "L0.3 is set to a number.*has none that is the same for every token"),
        ("qwen2", {"set": "L1:1.5"}, "L1 is set to a number"),
        ("opt", {"zero": "L0.3", "positions": "0"}, "at some positions only. Apply them at every token first"),
    ],
)
def test_interventions_as_a_command_or_why_not(name, arguments, expected):
    import re

    model = make_memory_model(tiny.make(name), source="m")
    write = how_to_write(model, Interventions.parse(**arguments))
    assert (write.command is None) != (write.why is None)
    assert re.search(expected, write.command or write.why)
    assert how_to_write(model, Interventions()) is None
