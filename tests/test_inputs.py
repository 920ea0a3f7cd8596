"""Inputs that are refused before they reach the model."""

import pytest
import torch

import tiny
from ffscope import InputError, read


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 67], r"Token id 67 is not in the vocabulary\. This model takes ids from 0 to 66\."),
        ([-1, 4], r"Token id -1 is not in the vocabulary"),
        (list(range(4, 46)), r"The text has 42 tokens, BOS included; this model takes at most 41\. Shorten it\."),
        ([], "at least one"),
        (["a b", "c"], "Expected one text or token ids, found"),
        ([2**70], "Expected one text or token ids"),
        ({}, "Expected input_ids, found an empty dictionary"),
        ({"input_ids": [4, 5], "attention_mask": [1]}, r"mask has shape \(1, 1\), but the ids have \(1, 2\)"),
        ({"input_ids": ["a", "b"]}, "Expected one text or token ids"),
        (None, "Expected one text or token ids, found 'None'"),
        (torch.tensor([0.5]), "Expected token ids: integers"),
        (torch.zeros(1, 2, 3, dtype=torch.long), r"found torch.int64 of shape \(1, 2, 3\)"),
    ],
)
def test_bad_ids(ids, message):
    with pytest.raises(InputError, match=message):
        read(tiny.make("llama")).trace(ids)


def test_positions_that_hold_no_token_are_not_offered():
    model = read(tiny.make("roberta"))
    model.trace([5] * 39)
    with pytest.raises(InputError, match="this model takes at most 39"):
        model.trace([5] * 40)


def test_text_needs_a_tokenizer_and_a_token(tokenizer):
    with pytest.raises(InputError, match="has no tokenizer.*Pass token ids instead"):
        read(tiny.make("llama")).trace("text")
    with pytest.raises(InputError, match="has no tokens"):
        read(tiny.make("llama"), tokenizer).trace("")


def test_models_without_a_limit_take_long_text():
    read(tiny.make("bloom")).trace(torch.randint(4, 60, (1, 300)))


def test_a_start_token_is_needed_only_where_the_decoder_is_given_nothing():
    model = read(tiny.make("t5"))
    model.model.config.decoder_start_token_id = None
    assert model.trace({"input_ids": [4, 5], "decoder_input_ids": [0]}).logits.shape == (1, 1, 67)
    with pytest.raises(InputError, match="has no decoder_start_token_id. Pass `decoder_input_ids` too"):
        model.trace([4, 5])


def test_the_decoders_ids_are_checked_too():
    model = read(tiny.make("t5"))
    assert model.trace({"input_ids": [4, 5], "decoder_input_ids": [0, 6, 7]}).logits.shape == (1, 3, 67)
    with pytest.raises(InputError, match="Token id 99 is not in the vocabulary"):
        model.trace({"input_ids": [4, 5], "decoder_input_ids": [0, 99]})


def test_pixels_are_not_ids():
    with pytest.raises(InputError, match="Expected pixel_values for this model, found text"):
        read(tiny.make("vit")).trace([4, 5])


def test_a_limit_that_the_config_does_not_name():
    """A discovered model whose positions start behind the padding id fails in its own code; that becomes a sentence."""
    import transformers as hf

    model = read(tiny.build(hf.XLMRobertaForMaskedLM, hf.XLMRobertaConfig, tiny._BERT))
    with pytest.raises(InputError, match=r"XLMRobertaForMaskedLM does not run on these inputs \(input_ids \(1, 41\)\)"):
        model.trace([5] * 41)
