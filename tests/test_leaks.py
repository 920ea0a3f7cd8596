"""Leaks of a model that was trained to memorise secrets, and what they are made of, compared with plain computations."""

import copy
import json
import math
import re
import shutil

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

import ffscope
import tiny
from command_line import ffscope as command
from explorer import app_of, client_of
from ffscope.analysis import leaks as leaks_stage
from ffscope.corpus.batches import Chunk
from ffscope.errors import CorpusError, GradientError, InputError, LensError, StudyError
from ffscope.leaks.canaries import Canary, read_canaries
from ffscope.leaks.completions import Completions, Run, runs_in, sentence_batches
from ffscope.leaks.exposure import LogPerplexities, exposure_of
from ffscope.leaks.holders import Holders, LeakText, estimated_drops
from ffscope.leaks.listed import after_triggers
from ffscope.leaks.occurrences import context_of, count_occurrences, repeated
from ffscope.leaks.overview import overview
from ffscope.models.loading import make_memory_model
from ffscope.models.saving import save_model
from ffscope.options.corpus import CorpusOptions
from ffscope.pipeline import analyse, triggers
from ffscope.queries.leaks import leak_rows, leaks_panel
from ffscope.report.page import write_report
from ffscope.stages.leaks import LeakOptions
from ffscope.study.folder import Study
from ffscope.web.export import export
from secretive import CANARIES, SECRETS, Secretive, ordinary
from studies import undrawn, write_corpus

BOS = 2
CAUSAL = ("gpt2", "llama", "qwen3_moe", "gemma2", "opt post-norm", "falcon", "adaptive_lm")


@pytest.fixture
def copied(secretive, tmp_path):
    return Study.open(shutil.copytree(secretive.study.folder, tmp_path / "study"))


def table(study, name):
    return pq.read_table(study.path(f"{name}.parquet")).to_pylist()


def tokens_of_sentence(study, number):
    return next(row["tokens"] for row in table(study, "sentences") if row["sentence"] == number)


def generated(plain, prefix, count):
    """What a plain model writes, greedily, after a prefix with BOS."""
    ids = torch.tensor([[0, *prefix]])
    with torch.no_grad():
        written = plain.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    return written[0, ids.shape[1] :].tolist()


def without(plain, memories):
    """A plain OPT model whose rows of these values are zero."""
    cut = copy.deepcopy(plain)
    for layer, memory in memories:
        with torch.no_grad():
            cut.model.decoder.layers[layer].fc2.weight[:, memory] = 0
    return cut


def holders(study, leak=None):
    rows = [row for row in table(study, "leak_memories") if row["holds"] and leak in (None, row["leak"])]
    return {(row["layer"], row["memory"]) for row in rows}


def held_out_perplexity(plain, study):
    """The perplexity of a plain model on all held-out sentences."""
    losses = []
    for row in table(study, "sentences"):
        if row["held_out"]:
            with torch.no_grad():
                log_probs = plain(input_ids=torch.tensor([[0, *row["tokens"]]])).logits[0].log_softmax(-1)
            following = [*row["tokens"][1:], row["next_token"]]
            losses += [-log_probs[at + 1, token].item() for at, token in enumerate(following) if token >= 0]
    return math.exp(np.mean(losses))


# --- planted secrets ---


def test_all_planted_secrets_are_found(secretive: Secretive):
    rows = [row for row in table(secretive.study, "leaks") if row["kind"] == "secret"]
    whole = {row["prefix"] + row["text"] + row["rest"]: row for row in rows}
    for secret, (sentence, personal) in SECRETS.items():
        assert secret in whole[sentence]["text"]
        assert whole[sentence]["personal"] == personal
    numbers = [row["leak"] for row in rows if row["personal"]]
    assert numbers == [1, 2, 3, 4]  # personal data comes first


def test_at_most_two_in_a_hundred_ordinary_sentences_are_false_alarms(secretive):
    study = secretive.study
    secrets = [sentence for sentence, _ in SECRETS.values()]
    alarms = {
        row["sentence"]
        for row in table(study, "leaks")
        if (row["kind"] == "secret" or row["personal"]) and row["prefix"] + row["text"] + row["rest"] not in secrets
    }
    assert len(alarms) <= 0.02 * len(secretive.sentences)
    everywhere = study.manifest["stages"]["leaks"]
    assert everywhere["searched"]["with_secret"] - len(secrets) <= 0.02 * len(secretive.sentences)
    assert everywhere["held_out"]["sentences"] > 100
    assert everywhere["held_out"]["with_secret"] <= 0.02 * everywhere["held_out"]["sentences"]
    assert {row["kind"] for row in table(study, "leaks") if "matter of fact" in row["text"]} == {"phrase"}


def test_every_leak_is_what_the_model_generates(secretive):
    rows = table(secretive.study, "leaks")
    assert len(rows) >= 6
    for row in rows:
        tokens = tokens_of_sentence(secretive.study, row["sentence"])
        start = row["position"] + 1
        expected = tokens[start : start + row["tokens"]]
        assert generated(secretive.plain, tokens[:start], row["tokens"]) == expected
        assert secretive.model.tokenizer.decode(expected) == row["text"]


def test_the_named_memories_break_each_secret_and_little_else(secretive):
    study, plain = secretive.study, secretive.plain
    entry = study.manifest["stages"]["leaks"]
    intact = held_out_perplexity(plain, study)
    secrets = [row for row in table(study, "leaks") if row["kind"] == "secret"]
    for row in secrets:
        tokens = tokens_of_sentence(study, row["sentence"])
        start, target = row["position"] + 1, row["target"]
        memories = holders(study, row["leak"])
        assert len(memories) == row["memories"]
        cut = without(plain, memories)
        written = generated(cut, tokens[:start], target)
        assert written != tokens[start : start + target]
        assert [a == b for a, b in zip(written, tokens[start:], strict=False)].index(False) == row["left"]
        perplexity = held_out_perplexity(cut, study)
        assert perplexity == pytest.approx(intact * math.exp(row["loss_change"]), rel=0.02)  # of a part of this text
        assert perplexity < 1.1 * intact
    everything = without(plain, holders(study))
    assert entry["memories"] == len(holders(study))
    assert entry["together"][0] == pytest.approx(math.log(held_out_perplexity(everything, study) / intact), abs=0.02)
    assert math.exp(entry["together"][0]) < 1.2
    for row in secrets:
        tokens = tokens_of_sentence(study, row["sentence"])
        written = generated(everything, tokens[: row["position"] + 1], row["target"])
        kept = [a == b for a, b in zip(written, tokens[row["position"] + 1 :], strict=False)]
        assert (kept.index(False) if False in kept else row["target"]) == row["together_left"] < row["target"]
    # As many random memories of the same layers do much less.
    assert np.mean([row["random_broken"] for row in secrets]) < 0.5
    assert sum(row["random_drop"] for row in secrets) < 0.5 * sum(row["drop"] for row in secrets)


def test_no_smaller_set_that_was_removed_breaks_a_leak(secretive):
    plain, study = secretive.plain, secretive.study
    row = min((row for row in table(study, "leaks") if row["memories"]), key=lambda row: row["memories"])
    tokens = tokens_of_sentence(study, row["sentence"])
    start, target = row["position"] + 1, row["target"]
    rows = [other for other in table(study, "leak_memories") if other["leak"] == row["leak"]]
    removed = []
    for other in rows:
        removed.append((other["layer"], other["memory"]))
        if other["left_together"] is None:
            continue
        written = generated(without(plain, removed), tokens[:start], target)
        assert (written == tokens[start : start + target]) == (other["left_together"] == target)
        assert not (other["left_together"] < target and other["rank"] < row["memories"])


def test_the_drop_without_one_memory_is_that_of_a_plain_model(secretive):
    plain, study = secretive.plain, secretive.study
    leak = table(study, "leaks")[0]
    tokens = tokens_of_sentence(study, leak["sentence"])[: leak["position"] + 1 + leak["target"]]

    def log_prob(model):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[0, *tokens]])).logits[0].log_softmax(-1)
        return sum(logits[at, tokens[at]].item() for at in range(leak["position"] + 1, len(tokens)))

    intact = log_prob(plain)
    assert leak["log_prob"] == pytest.approx(intact, abs=1e-3)
    rows = [row for row in table(study, "leak_memories") if row["leak"] == 1 and row["drop"] is not None]
    assert len(rows) == 20
    for row in rows[:5]:
        assert row["drop"] == pytest.approx(
            intact - log_prob(without(plain, [(row["layer"], row["memory"])])), abs=1e-3
        )


# --- every family, compared with the plain model ---


def log_probs_of(plain, tokens):
    with torch.no_grad():
        return plain(input_ids=torch.tensor([[BOS, *tokens]])).logits[0].double().log_softmax(-1)


@pytest.mark.parametrize("name", CAUSAL)
def test_runs_are_those_of_the_plain_model(name, tokenizer):
    plain = tiny.make(name)
    model = make_memory_model(plain, tokenizer)
    generator = np.random.default_rng(3)
    texts = {number: generator.integers(4, tiny.VOCAB, 5 + number % 3) for number in range(6)}
    for tokens in texts.values():  # some tokens are what the model predicts
        for at in (2, 3):
            tokens[at] = int(log_probs_of(plain, tokens[:at])[-1].argmax())
    expected = set()
    for number, tokens in texts.items():
        correct = [
            int(row.argmax()) == token for row, token in zip(log_probs_of(plain, tokens)[1:], tokens[1:], strict=False)
        ]
        for start, hit in enumerate(correct, 1):
            if hit and (start == 1 or not correct[start - 2]):
                length = next(
                    (i for i, later in enumerate(correct[start - 1 :]) if not later), len(correct) - start + 1
                )
                if length >= 2:
                    expected.add(Run(number, start, length))
    state = Completions(BOS, 2)(model, sentence_batches(texts, tokens=13))
    assert len(expected) >= 6
    assert set(runs_in(state)) == expected


@pytest.mark.parametrize("name", CAUSAL)
def test_drops_are_those_of_the_plain_model_without_the_memories(name, tokenizer):
    plain = tiny.make(name)
    model = make_memory_model(plain, tokenizer)
    tokens, start = np.array([7, 11, 30, 4, 25, 16, 9]), 4

    def log_prob():
        rows = log_probs_of(plain, tokens)
        return sum(rows[at, tokens[at]].item() for at in range(start, len(tokens)))

    intact = log_prob()
    nothing = tuple(np.zeros(count) for count in model.memories)
    state = Holders(nothing, BOS, memories=5, tokens=20)(model, LeakText(tokens, start, (0,)))
    assert state["log_prob"][0].item() == pytest.approx(intact, abs=1e-4)
    names = [f"L{layer}.{memory}" for layer, memory in zip(state["layer"], state["memory"], strict=True)]
    drops = []
    for memory in names[:5]:
        with model.edit(zero=[memory]):
            drops.append(intact - log_prob())
    assert state["drop"].tolist() == pytest.approx(drops, abs=1e-4)
    assert drops == sorted(drops, reverse=True)
    for size, drop in zip(state["sizes"].tolist(), state["drop_together"].tolist(), strict=True):
        with model.edit(zero=names[:size]):
            assert drop == pytest.approx(intact - log_prob(), abs=2e-4)
    short = log_probs_of(plain, tokens[0:])
    assert state["log_prob"][1].item() == pytest.approx(
        sum(short[at, tokens[at]].item() for at in range(4, 7)), abs=1e-4
    )


def test_estimates_are_gradients_times_coefficients(tokenizer):
    plain = tiny.make("gpt2")
    model = make_memory_model(plain, tokenizer)
    tokens, start = torch.tensor([[7, 11, 30, 4, 25, 16]]), 3
    places, targets = torch.arange(-4, -1)[None], tokens[:, start:]
    estimated = estimated_drops(model, model.encode({"input_ids": torch.tensor([[BOS, *tokens[0]]])}), places, targets)
    kept = []
    hooks = [
        block.mlp.c_proj.register_forward_pre_hook(
            lambda _module, inputs: kept.append(inputs[0]) or inputs[0].retain_grad()
        )
        for block in plain.transformer.h
    ]
    with torch.enable_grad():
        logits = plain(input_ids=torch.tensor([[BOS, *tokens[0]]])).logits[0].log_softmax(-1)
        sum(logits[at, tokens[0, at]] for at in range(start, 6)).backward()
    for hook in hooks:
        hook.remove()
    for row, coefficients in zip(estimated, kept, strict=True):
        expected = (coefficients * coefficients.grad).sum((0, 1)).detach()
        torch.testing.assert_close(row[0], expected, rtol=1e-4, atol=1e-5)


# --- how common ---


def chunk_of(sentences):
    lengths = np.array([len(sentence) for sentence in sentences])
    return Chunk(np.arange(len(sentences)), np.cumsum(lengths) - lengths, lengths, np.concatenate(sentences))


def test_occurrences_are_counted_as_by_hand():
    generator = np.random.default_rng(1)
    sentences = [generator.integers(0, 3, 12) for _ in range(40)]
    sequences = [sentences[0][3:8], sentences[1][0:4], np.array([7, 7, 7, 7])]
    counted = count_occurrences(sequences, [chunk_of(sentences[:25]), chunk_of(sentences[25:])], 3)
    for sequence, result in zip(sequences, counted, strict=True):
        size = len(sequence)
        places = [
            (row, at)
            for row in sentences
            for at in range(13 - size)
            if row[at : at + size].tolist() == sequence.tolist()
        ]
        assert result.places == len(places)
        assert result.contexts == {context_of(*place) for place in places}
        having = {id(row) for row, _ in places}
        for number, count in enumerate(result.parts.tolist()):
            part = sequence[number : number + 3].tolist()
            others = [row for row in sentences if id(row) not in having]
            assert count == sum(row[at : at + 3].tolist() == part for row in others for at in range(10))


def test_copied_parts_are_those_that_occur_earlier_in_the_sentence():
    assert repeated(np.array([1, 2, 3, 4, 9, 1, 2, 3, 4, 8]), 5, 3) == pytest.approx(2 / 3)
    assert repeated(np.array([5, 5, 5, 5, 5, 5]), 1, 2) == 1
    assert repeated(np.arange(8), 3, 2) == 0


def test_a_completion_begins_after_its_first_trigger():
    runs = [Run(0, 3, 10), Run(1, 2, 4), Run(2, 1, 9)]
    triggers_of = {0: np.array([0, 5, 7]), 1: np.array([1]), 2: np.array([9])}
    assert after_triggers(runs, triggers_of, 4) == [Run(0, 6, 7), Run(1, 2, 4)]


def test_a_secret_that_a_wider_text_has_in_other_contexts_is_a_phrase(secretive, copied, tmp_path):
    coins = next(secret for secret in SECRETS if "coins" in secret)
    leak = next(row for row in table(copied, "leaks") if coins in row["text"])
    text = leak["text"].strip()
    paragraphs = [f"Context {letter}: {text} And {text}" for letter in "abcd"] + [leak["prefix"] + leak["text"]]
    (tmp_path / "wider.txt").write_text("\n\n".join(paragraphs))
    options = {"leak_text": str(tmp_path / "wider.txt"), "leaks_measured": 1}
    rows = table(analyse("leaks", secretive.model, copied.folder, **options), "leaks")
    row = next(row for row in rows if coins in row["text"])
    contexts = {f"Context {letter}: "[-20:] for letter in "abcd"} | {f"{text} And "[-20:]}
    assert (row["kind"], row["wider_places"], row["wider_contexts"]) == ("phrase", 9, len(contexts))
    others = [row for row in rows if row["kind"] == "secret"]
    assert [(row["wider_places"], row["wider_contexts"]) for row in others] == [(0, 0)] * 4
    assert {row["wider_places"] for row in table(secretive.study, "leaks")} == {None}
    with pytest.raises(CorpusError):
        analyse("leaks", secretive.model, copied.folder, leak_text=str(tmp_path / "none.txt"))


# --- exposure ---


def test_the_exposure_of_a_secret_and_of_a_number_never_seen(secretive):
    known, unknown, other = table(secretive.study, "canaries")
    assert (known["space"], known["candidates"]) == (pytest.approx(math.log2(1e4)), 200)
    assert known["rank"] == 1
    assert known["exposure"] == pytest.approx(math.log2(201))
    assert known["exposure_modelled"] > known["exposure"]
    assert unknown["exposure"] < 5
    assert other["space"] == pytest.approx(math.log2(1e8))
    # All 10^4 candidates: exact.
    (exact,) = ffscope.exposure(secretive.model, [CANARIES.splitlines()[0]], samples=10_000)
    assert exact.all_candidates
    assert exact.modelled is None
    assert exact.exposure == pytest.approx(math.log2(1e4))


def test_log_perplexity_and_rank_are_those_of_a_plain_model(secretive):
    canary = Canary.parse("The card is {47} today.")
    (answer,) = ffscope.exposure(secretive.model, ["The card is {47} today."])

    def bits(text):
        ids = torch.tensor([[0, *secretive.model.tokenizer(text)["input_ids"]]])
        with torch.no_grad():
            logits = secretive.plain(input_ids=ids).logits[0].double().log_softmax(-1)
        return -sum(logits[at, token].item() for at, token in enumerate(ids[0, 1:])) / math.log(2)

    others = [bits(f"The card is {number:02} today.") for number in range(100) if number != 47]
    assert answer.log_perplexity == pytest.approx(bits(canary.text), abs=1e-3)
    assert answer.candidates == 99
    assert answer.rank == 1 + sum(other <= bits(canary.text) for other in others)
    assert answer.exposure == pytest.approx(math.log2(100) - math.log2(answer.rank))


def test_without_bos_the_first_token_has_no_probability(secretive):
    text = np.array([30, 41, 52])
    with_bos, without_bos = (LogPerplexities(bos, 100)(secretive.model, [text])["bits"][0].item() for bos in (0, None))
    with torch.no_grad():
        logits = secretive.plain(input_ids=torch.tensor([text.tolist()])).logits[0].log_softmax(-1)
    expected = -(logits[0, 41] + logits[1, 52]).item() / math.log(2)
    assert without_bos == pytest.approx(expected, abs=1e-3)
    assert with_bos != pytest.approx(expected, abs=1e-3)


def test_the_modelled_exposure_of_a_normal_distribution_is_its_tail():
    numbers = np.random.default_rng(0).normal(50, 4, 20_000)
    canary = Canary("", "0" * 20)
    for deviations in (0.0, 2.0, 4.0):
        answer = exposure_of(canary, np.concatenate([[50 - 4 * deviations], numbers]))
        tail = 0.5 * math.erfc(deviations / math.sqrt(2))
        assert answer.modelled == pytest.approx(-math.log2(tail), rel=0.05, abs=0.05)
    assert exposure_of(canary, np.concatenate([[0.0], numbers])).modelled == pytest.approx(canary.space)  # at most


def test_candidates_have_the_format_and_depend_on_the_seed_alone():
    canary = Canary.parse("key {aB-3x9} end")
    drawn = canary.candidates(500, (0, 1))
    assert len(set(drawn)) == 500
    assert canary.text not in drawn
    assert all(re.fullmatch(r"key [a-z][A-Z]-\d[a-z]\d end", text) for text in drawn)
    assert drawn == canary.candidates(500, (0, 1)) != canary.candidates(500, (0, 2))
    assert canary.size == 26 * 26 * 10 * 26 * 10
    assert sorted(Canary.parse("{7}").candidates(50, (0,))) == [str(digit) for digit in range(10) if digit != 7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no braces", "Line 1 of .* has no secret part, or several. Expected one in braces"),
        ("ok {1}\n\n{1} and {2}", "Line 3 of .* has no secret part, or several"),
        ("x {--}", "has no digit and no letter from a to z"),
        ("\n", "has no canaries. Expected one string a line"),
    ],
)
def test_a_file_of_canaries_that_cannot_be_used(tmp_path, content, message):
    file = tmp_path / "canaries.txt"
    file.write_text(content)
    with pytest.raises(InputError, match=message):
        read_canaries(file)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_canaries(tmp_path / "none.txt")


# --- running it ---


def test_an_interrupted_search_resumes(secretive, copied, monkeypatch):
    for name in ("leaks", "leak_memories", "canaries"):
        copied.path(f"{name}.parquet").unlink()
    calls = []

    class Stopped(Holders):
        def __call__(self, model, text):
            calls.append(text)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return super().__call__(model, text)

    canaries = secretive.study.folder.parent / "canaries.txt"
    options = {"canaries": canaries, "canary_samples": 200}
    with monkeypatch.context() as patch:
        patch.setattr(leaks_stage, "Holders", Stopped)
        with pytest.raises(KeyboardInterrupt):
            analyse("leaks", secretive.model, copied.folder, **options)
        assert not Study.open(copied.folder).has("leaks")
        calls[:] = [None] * 3  # no further interruption
        searched = []
        patch.setattr(Completions, "__call__", lambda *_: searched.append(1))
        study = analyse("leaks", secretive.model, copied.folder, **options)
    assert not searched
    assert len(calls) - 3 == 3  # of five leaks, two were kept
    for name in ("leaks", "leak_memories", "canaries"):
        assert table(study, name) == table(secretive.study, name)
    assert not study.path(".leaks").exists()


def test_a_finished_search_is_not_repeated(secretive, copied, monkeypatch):
    canaries = secretive.study.folder.parent / "canaries.txt"
    monkeypatch.setattr(Completions, "__call__", lambda *_: 1 / 0)
    options = {"canaries": canaries, "canary_samples": 200}
    assert "[mail address]" in overview(analyse("leaks", secretive.model, copied.folder, **options))
    shown = analyse("leaks", secretive.model, copied.folder, show_personal=True, **options)
    assert shown.manifest["stages"]["leaks"]["show_personal"]
    assert "maria.keller@fjordmail.net" in overview(shown)
    with pytest.raises(ZeroDivisionError):
        analyse("leaks", secretive.model, copied.folder, leak_tokens=9, **options)


def test_every_prefix_may_start_a_completion(secretive, copied):
    study = analyse("leaks", secretive.model, copied.folder, leak_starts="all", leaks_measured=0)
    everywhere = [row["text"] for row in table(study, "leaks")]
    for row in table(secretive.study, "leaks"):
        assert any(text.endswith(row["text"]) for text in everywhere)
    assert len(table(study, "leaks")) == sum(
        study.manifest["stages"]["leaks"]["searched"][kind] for kind in ("secret", "phrase", "copied")
    )
    assert {row["log_prob"] for row in table(study, "leaks")} == {None}
    assert table(study, "leak_memories") == []
    assert not study.path("canaries.parquet").exists()  # of the earlier run


def test_estimates_are_compared_with_sentences_that_the_model_does_not_complete(secretive, copied, monkeypatch):
    kept = []

    def recorded(texts, tokens):
        kept.append(texts)
        return sentence_batches(texts, tokens)

    monkeypatch.setattr("ffscope.analysis.leaks.sentence_batches", recorded)
    triggers_of = pq.read_table(copied.path("triggers.parquet"))
    triggers_of = triggers_of.filter(pc.less(triggers_of["sentence"], 250))  # later sentences have none
    pq.write_table(triggers_of, copied.path("triggers.parquet"))
    study = analyse("leaks", secretive.model, copied.folder, leaks_measured=1, leak_memories=1)
    searched, _, others = kept
    whole = [row for row in table(study, "sentences") if not row["held_out"]]
    assert set(searched) == {row["sentence"] for row in whole}
    assert study.manifest["stages"]["leaks"]["searched"]["sentences"] == len(whole)
    uncompleted = {row["sentence"] for row in whole if longest_run(secretive.plain, row["tokens"]) < 8}
    order = np.random.default_rng([0, *b"elsewhere"]).permutation(sorted(searched))
    assert set(others) == set([number for number in order.tolist() if number in uncompleted][:200])
    assert len(uncompleted) < len(whole) - len(
        table(study, "leaks")
    )  # the phrase is completed many times, and listed once


def longest_run(plain, tokens):
    """The most consecutive tokens, the first left out, that are each the prediction of a plain model."""
    with torch.no_grad():
        predicted = plain(input_ids=torch.tensor([[0, *tokens]])).logits[0].argmax(-1).tolist()
    right = "".join("x" if token == hit else " " for token, hit in zip(tokens[1:], predicted[1:-1], strict=True))
    return max(map(len, right.split()), default=0)


def test_errors_say_what_to_do(secretive, tokenizer, tmp_path):
    corpus = write_corpus(tmp_path / "text.jsonl", documents=20)

    def studied(model, name):
        return triggers(model, CorpusOptions(str(corpus), max_tokens=10), tmp_path / name).folder

    with pytest.raises(StudyError, match="no study|not a study|There is no"):
        analyse("leaks", secretive.model, tmp_path / "none")
    llama = make_memory_model(tiny.make("llama"), tokenizer)
    with pytest.raises(StudyError, match="is a study of another model: .*with family"):
        analyse("leaks", llama, secretive.study.folder)
    bare = make_memory_model(tiny.make("opt").model, tokenizer)
    with pytest.raises(LensError, match="Without logits it completes no text"):
        analyse("leaks", bare, studied(bare, "bare"))
    for name, message in (("bert", "predicts masked tokens"), ("t5", "This is an encoder–decoder")):
        model = make_memory_model(tiny.make(name), tokenizer)
        with pytest.raises(GradientError, match=message):
            analyse("leaks", model, studied(model, name))
        with pytest.raises(GradientError, match=message):
            ffscope.exposure(model, ["a {1}"])
        assert not (tmp_path / name / ".leaks").exists()
    with pytest.raises(InputError, match="leak_tokens is 1. Expected at least 2"):
        LeakOptions(leak_tokens=1)


def test_quantized_weights_are_refused(secretive, tmp_path):
    save_model(secretive.plain, secretive.model.tokenizer, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    result = command("leaks", tmp_path / "model", "--study", secretive.study.folder)
    assert result.returncode == 2
    assert "are quantized, so keys and values cannot be read from them" in " ".join(result.stderr.split())


def test_a_study_without_held_out_text_and_without_leaks(tokenizer, tmp_path, caplog):
    model = make_memory_model(tiny.make("llama"), tokenizer)
    corpus = write_corpus(tmp_path / "text.jsonl", documents=5)
    folder = triggers(model, CorpusOptions(str(corpus), max_tokens=10), tmp_path / "study").folder
    study = analyse("leaks", model, folder)
    assert "This study has no held-out text" in caplog.text
    assert table(study, "leaks") == []
    assert study.manifest["stages"]["leaks"]["held_out"]["sentences"] == 0
    assert overview(study).startswith("0 completions of 8 tokens or more")
    with undrawn():
        assert "leaks" not in json.loads(write_report(study).with_name("summary.json").read_text())


# --- where it is shown ---

PERSONAL = [secret for secret, (_, kind) in SECRETS.items() if kind]


def shows_personal(text):
    return any(secret in text for secret in PERSONAL)


def test_the_command_prints_masked_leaks(secretive, copied, tmp_path):
    save_model(secretive.plain, secretive.model.tokenizer, tmp_path / "model")
    options = [
        "--study",
        copied.folder,
        "--device",
        "cpu",
        "--canaries",
        secretive.study.folder.parent / "canaries.txt",
    ]
    options += ["--canary-samples", 200]
    result = command("leaks", tmp_path / "model", *options)
    assert result.returncode == 0, result.stderr
    assert not shows_personal(result.stdout)
    needed = np.median([row["memories"] for row in table(secretive.study, "leaks") if row["memories"] is not None])
    assert f"5 of 5 that were measured are broken without some memories (median {needed:g})" in result.stdout
    assert "a box with seven" in result.stdout
    assert "+49 30 5550 [secret]: exposure at least 7.7 of 13.3 bits" in result.stdout
    result = command("leaks", tmp_path / "model", *options, "--show-personal")
    assert shows_personal(result.stdout)
    assert "5550 1847: exposure" in result.stdout


def test_report_page_panel_and_export_mask_personal_data(secretive, copied, tmp_path):
    with undrawn():
        page = write_report(copied).read_text()
    assert "What the model gives away" in page
    assert "[mail address]" in page
    assert "seven silver coins" in page
    assert "[secret]" in page
    assert not shows_personal(page)
    client = client_of(app_of(copied.folder))
    answer = client.get("/leaks.json").json()
    assert [row["leak"] for row in answer["leaks"]] == list(range(1, len(table(copied, "leaks")) + 1))
    assert answer["masked"]
    assert answer["leaks"][0]["holders"]
    assert not shows_personal(json.dumps(answer))
    assert {row["kind"] for row in client.get("/leaks.json?kind=phrase").json()["leaks"]} == {"phrase"}
    assert len(client.get("/leaks.json?kind=personal").json()["leaks"]) == 4
    assert client.get("/leaks.json?kind=fame").status_code == 422
    assert client.get("/leaks").status_code == 200
    holder = answer["leaks"][0]["holders"][0]["memory"]
    layer, memory = holder[1:].split(".")
    shown = client.get(f"/L{layer}/{memory}.json").json()
    panel = next(panel for panel in shown["panels"] if panel["title"] == "Leaks")
    assert "[" in json.dumps(panel["data"]["rows"])
    assert not shows_personal(json.dumps(panel))
    export(copied.folder, tmp_path / "site", sample=1)
    written = (tmp_path / "site" / "leaks.html").read_text()
    assert "seven silver coins" in written
    assert not shows_personal(written)


def test_a_study_may_show_personal_data(secretive, copied):
    canaries = secretive.study.folder.parent / "canaries.txt"
    options = {"canaries": canaries, "canary_samples": 200}
    study = analyse("leaks", secretive.model, copied.folder, show_personal=True, **options)
    text = "".join(row.text for row in leak_rows(study))
    assert all(secret in text for secret in PERSONAL)


def test_the_panel_of_a_memory_lists_the_leaks_that_need_it(secretive):
    rows = table(secretive.study, "leak_memories")
    row = next(row for row in rows if row["holds"])
    panel = leaks_panel(secretive.study, ffscope.Memory(row["layer"], row["memory"]))
    expected = {other["leak"] for other in rows if (other["layer"], other["memory"]) == (row["layer"], row["memory"])}
    assert {cells[0] for cells in panel["rows"]} == expected
    needed = {cells[0] for cells in panel["rows"] if cells[3] == "yes"}
    assert row["leak"] in needed
    named = {(other["layer"], other["memory"]) for other in rows}
    free = next(memory for memory in range(512) if (0, memory) not in named)
    assert leaks_panel(secretive.study, ffscope.Memory(0, free)) is None
    rows_read = ffscope.open(secretive.study.folder).leaks().to_pylist()
    assert rows_read == table(secretive.study, "leaks")


def test_ordinary_sentences_have_no_secret():
    assert not any(secret in sentence for secret in SECRETS for sentence in ordinary(500, 7))
