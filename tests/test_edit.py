"""Edits that are written into weights, compared with plain transformers models whose weights are edited by hand."""

import copy

import pytest
import torch

import ffscope
import tiny
from ffscope.editing.record import RECORD, Edited
from ffscope.editing.undo import undo
from ffscope.models.inputs import random_inputs
from ffscope.models.loading import load
from ffscope.models.saving import save_model

SCALE = {"L0.1": 2.0, "L1.7": -1.5, "L1.8": 1.3}


def logits_of(model):
    """Its logits, or last states, on random inputs."""
    with torch.no_grad():
        result = model(**random_inputs(model, batch=2, length=7))
    return result.logits if hasattr(result, "logits") else result.last_hidden_state


def saved(name, folder, dtype=torch.float32):
    """A tiny model in a folder, loaded from it."""
    plain = tiny.make(name).to(dtype)
    save_model(plain, None, folder)
    return load(str(folder), device="cpu")


def same_weights(a, b):
    a, b = ({**model.state_dict()} for model in (a, b))
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("name", tiny.sweep(tiny.TABLE))
def test_a_written_edit_equals_the_live_one_and_is_undone(name, tmp_path):
    model = saved(name, tmp_path / "source")
    before = copy.deepcopy(model.model.state_dict())
    last = model.layers - 1
    edits = {"zero": ["L0.3", f"L{last}"], "scale": {key: f for key, f in SCALE.items() if key[:2] != f"L{last}"}}
    edited = ffscope.edit(model, tmp_path / "edited", **edits)
    for key, tensor in model.model.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)
    auto = type(model.model).from_pretrained(tmp_path / "edited").eval()
    with model.edit(**edits):
        expected = logits_of(model.model)
    torch.testing.assert_close(logits_of(auto), expected, rtol=1e-5, atol=1e-5)
    assert (logits_of(model.model) - expected).abs().max() > 1e-3
    assert edited.error < 1e-5
    changed = {weight.name for weight in edited.weights}
    for key, tensor in auto.state_dict().items():
        assert torch.equal(tensor, before[key]) == (key not in changed)
    assert Edited.read(tmp_path / "edited") == (edited,)
    undo(tmp_path / "edited", tmp_path / "undone")
    same_weights(
        type(model.model).from_pretrained(tmp_path / "undone"), type(model.model).from_pretrained(tmp_path / "source")
    )
    assert not (tmp_path / "undone" / RECORD).exists()
