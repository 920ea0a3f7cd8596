"""Models spread over devices by a device map, compared with the same model on one device."""

import copy

import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import studies
import tiny
from ffscope import SourceError, load
from ffscope.models.check import check
from ffscope.models.fingerprint import manifest_entry
from ffscope.models.placement import input_device
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers

pytest.importorskip("accelerate", reason="a device map needs accelerate")

FAMILIES = ["gpt2", "llama", "qwen3_moe", "gemma2", "opt post-norm", "falcon", "bert", "t5"]
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# Offloaded weights are on the meta device except while their module runs.
PLACES = [("cpu", "disk"), pytest.param("cuda:0", "cpu", marks=GPU)]
STAGES = ("values", "mutation", "composition", "refinement", "effects", "types")
TABLES = ("triggers", "memories", "examples", *STAGES, "last_layer", "exact_effects", "effect_groups")
OPTIONS = {**studies.SMALL, "examples": 12, "mutation_memories": 3, "mutation_triggers": 2}
CORPUS, HELD_OUT = (
    "\n\n".join(f"{word} cat sat on {noun}." for word in words for noun in ("mats", "hats", "the dog", "it"))
    for words in (("a", "the", "my", "no", "his"), ("our", "any"))
)


def device_map(model, first, second, prefix=""):
    """Every other block, and the modules after them, on the second device; the rest on the first."""
    places = {}
    after_blocks = False
    for name, child in model.named_children():
        path = f"{prefix}{name}"
        if isinstance(child, nn.ModuleList):
            places |= {f"{path}.{i}": (first, second)[i % 2] for i in range(len(child))}
            after_blocks = True
        elif any(isinstance(module, nn.ModuleList) for module in child.modules()):
            places |= device_map(child, first, second, f"{path}.")
        else:
            places[path] = second if after_blocks else first
    return places


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path, tokenizer):
    tiny.make(request.param).save_pretrained(tmp_path / "model")
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.mask_token = "<unk>"  # effects of a masked model need one
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def both(folder, first, second):
    device = torch.device(first)
    plain = load(folder, device=first, dtype="float32")
    spread = load(folder, dtype="float32", device_map=device_map(plain.model, device.index or first, second))
    return plain, spread


@pytest.mark.parametrize(("first", "second"), PLACES)
def test_a_spread_model_is_read_as_a_whole_one(folder, first, second):
    plain, spread = both(folder, first, second)
    assert len({tensor.device for tensor in spread.model.state_dict().values()}) == 2
    assert spread.device == plain.device == input_device(plain.model)
    assert manifest_entry(spread) == manifest_entry(plain)
    assert all(finding.holds for finding in check(spread))
    trace, expected = spread.trace("the cat sat"), plain.trace("the cat sat")
    with spread.edit(zero=["L1.2"], scale={"L0.1": 3.0}), plain.edit(zero=["L1.2"], scale={"L0.1": 3.0}):
        edited, expected_edited = spread.trace("the cat sat"), plain.trace("the cat sat")
    for layer in range(plain.layers):
        torch.testing.assert_close(spread.values(layer), plain.values(layer), rtol=0, atol=0)
        torch.testing.assert_close(spread.keys(layer), plain.keys(layer), rtol=0, atol=0)
        for name in ("coefficients", "residual", "update", "output"):
            torch.testing.assert_close(
                getattr(trace, name)[layer], getattr(expected, name)[layer], rtol=1e-4, atol=1e-5
            )
            torch.testing.assert_close(
                getattr(edited, name)[layer], getattr(expected_edited, name)[layer], rtol=1e-4, atol=1e-5
            )
    torch.testing.assert_close(edited.logits, expected_edited.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("first", "second"), PLACES)
def test_every_stage_of_a_spread_model_gives_the_same_tables(folder, first, second, tmp_path):
    for name, text in (("text.txt", CORPUS), ("held-out.txt", HELD_OUT)):
        (tmp_path / name).write_text(text)
    tables = []
    for name, model in zip(("plain", "spread"), both(folder, first, second), strict=True):
        corpus = CorpusOptions(str(tmp_path / "text.txt"), held_out=str(tmp_path / "held-out.txt"), max_tokens=20)
        study = triggers(model, corpus, tmp_path / name, search=SearchOptions(top=4, batch_tokens=200))
        for stage in STAGES:
            study = analyse(stage, model, study.folder, **OPTIONS)
        tables.append({table: pq.read_table(study.path(f"{table}.parquet")).to_pylist() for table in TABLES})
    for table in TABLES:
        for row, expected in zip(tables[1][table], tables[0][table], strict=True):
            assert row.keys() == expected.keys()
            for column, value in expected.items():
                assert row[column] == (
                    pytest.approx(value, rel=1e-3, abs=1e-5) if _is_real(value) else value
                ), (table, column)  # fmt: skip


def _is_real(value):
    return isinstance(value, float) or (isinstance(value, list) and any(isinstance(x, float) for x in value))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"device_map": "best"}, "There is no device map 'best'. Choose one of: auto, "),
        ({"device_map": "auto", "device": "cpu"}, "A device map chooses the devices itself."),
    ],
)
def test_a_wrong_device_map_is_refused(arguments, message, tmp_path):
    with pytest.raises(SourceError, match=message):
        load(tmp_path, **arguments)


def test_a_device_map_needs_safetensors(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(SourceError, match="A device map needs a folder of safetensors"):
        load(tmp_path / "model.gguf", device_map="auto")
