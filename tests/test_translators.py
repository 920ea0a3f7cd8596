"""Learned lenses, compared with plain transformers: the maps, their training, the mean Jacobians, and what the stage writes."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import tiny
from ffscope.errors import CorpusError, InputError, LensError, StudyError
from ffscope.models.lenses.learned.base import Translator, translator_tensors
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, learn_lenses, run, triggers
from ffscope.study.folder import Study
from ffscope.translators.jacobian import sentence_jacobians
from ffscope.translators.states import read_rows, translated_states
from ffscope.translators.texts import TrainingText, training_text
from ffscope.translators.tuned import Schedule, Training
from plain import DECODER_START
from studies import SMALL, undrawn, write_corpus

BOS = 2
SENTENCES = [np.array(row) for row in ([7, 11, 30, 4, 25, 16], [9, 8, 41, 66], [12, 5, 33, 9, 20])]
SHORT = {"lens_steps": 6, "lens_tokens": 40, "lens_validation": 30, "jacobian_sentences": 3, "lens_examples": 20}
TEXT_KINDS = [name for name in tiny.KINDS if name != "vit"]
# A module to whose output something is added in order to add it to the residual of the layer.
BEFORE_RESIDUAL = {
    "gpt2": "transformer.h.{}.attn.c_proj",
    "llama": "model.layers.{}.self_attn.o_proj",
    "falcon": "transformer.h.{}.self_attention.dense",
    "opt post-norm": "model.decoder.layers.{}.self_attn_layer_norm",
    "granite": "model.layers.{}.self_attn.o_proj",
}


def plain_ids(name, sentence):
    ids = {"input_ids": torch.tensor([[BOS, *sentence.tolist()]])}
    if name in DECODER_START:
        ids["decoder_input_ids"] = torch.tensor([[DECODER_START[name], *sentence.tolist()]])
    return ids


@pytest.mark.parametrize("name", TEXT_KINDS)
def test_rows_are_the_states_after_every_token_in_any_batch(name):
    model = make_memory_model(tiny.make(name))
    rows = read_rows(model, SENTENCES, BOS, tokens=64)
    assert len(rows.last) == sum(map(len, SENTENCES))
    expected: dict = {}
    for sentence in sorted(SENTENCES, key=len):
        trace = model.trace(plain_ids(name, sentence))
        for of, layer in translated_states(model):
            expected.setdefault((of, layer), []).append(getattr(trace, of)[layer][0, 1:])
    if model.causal:  # padded texts are read in another order
        for key, states in rows.states.items():
            ordered = torch.cat(expected[key])
            assert torch.cdist(ordered, states).min(1).values.max() < 1e-4
    else:
        for key, states in rows.states.items():
            torch.testing.assert_close(states, torch.cat(expected[key]), atol=1e-5, rtol=1e-4)


class Shifted:
    """The last output of a plain model, with something added to the residual of a layer at one position."""

    def __init__(self, name):
        self.name, self.hf = name, tiny.make(name).double()
        self.model = make_memory_model(self.hf)

    def last(self, layer, position, shift):
        def add(_module, _args, output):
            output = output.clone()
            output.view(1, -1, output.shape[-1])[0, position] += shift
            return output

        handle = self.hf.get_submodule(BEFORE_RESIDUAL[self.name].format(layer)).register_forward_hook(add)
        try:
            return self.model.trace(plain_ids(self.name, SENTENCES[1])).output[-1][0]
        finally:
            handle.remove()


@pytest.mark.parametrize("name", BEFORE_RESIDUAL)
def test_the_jacobian_is_what_a_small_shift_of_the_residual_does(name):
    shifted, sentence = Shifted(name), SENTENCES[1]
    jacobians = sentence_jacobians(shifted.model, sentence, BOS)
    hidden, small = shifted.model.hidden, 2e-3  # some norms compute in float32
    scale = 0.3 if name == "granite" else 1.0  # the attention's output is multiplied by it before it is added
    for layer in (0, shifted.model.layers - 1):
        columns = torch.zeros(hidden, hidden, dtype=torch.float64)
        for direction in range(hidden):
            for position in range(1, len(sentence) + 1):
                shift = torch.zeros(hidden, dtype=torch.float64)
                shift[direction] = small / scale
                change = shifted.last(layer, position, shift) - shifted.last(layer, position, -shift)
                columns[:, direction] += change[1:].sum(0) / (2 * small) / len(sentence)
        torch.testing.assert_close(jacobians["residual", layer].double(), columns, atol=3e-3, rtol=3e-3)


@pytest.mark.parametrize("name", TEXT_KINDS)
def test_jacobians_do_not_depend_on_how_many_rows_are_computed_at_once(name, monkeypatch):
    model = make_memory_model(tiny.make(name))
    together = sentence_jacobians(model, SENTENCES[0], BOS)
    monkeypatch.setattr("ffscope.translators.jacobian.texts_at_once", lambda *_: 5)
    apart = sentence_jacobians(model, SENTENCES[0], BOS)
    assert list(together) == translated_states(model)
    for key, jacobian in together.items():
        torch.testing.assert_close(apart[key], jacobian, atol=1e-5, rtol=1e-5)


def saved(folder, name, translators):
    (folder / "lenses").mkdir(parents=True, exist_ok=True)
    save_file(translator_tensors(translators), folder / "lenses" / f"{name}.safetensors")
    return folder


def random_translators(model, seed=3):
    generator = torch.Generator().manual_seed(seed)
    hidden = model.hidden
    return {
        key: Translator(torch.randn(hidden, hidden, generator=generator), torch.randn(hidden, generator=generator))
        for key in translated_states(model)
    }


@torch.no_grad()
@pytest.mark.parametrize("name", TEXT_KINDS)
def test_a_learned_lens_translates_states_and_updates_then_reads_as_norm(name, tmp_path):
    model = make_memory_model(tiny.make(name))
    translators = random_translators(model)
    lens, norm = model.lens("tuned", saved(tmp_path, "tuned", translators)), model.lens("norm")
    vectors = torch.randn(7, model.hidden, generator=torch.Generator().manual_seed(5))
    for of, layer in translated_states(model):
        weight, bias = translators[of, layer]
        expected = norm.states(vectors @ weight.T + bias, layer)
        torch.testing.assert_close(lens.states(vectors, layer, of), expected, atol=1e-4, rtol=1e-4)
        assert torch.equal(lens.state_tops(vectors, layer, of), lens.states(vectors, layer, of).argmax(-1))
    layer = model.predicting_layers[0]
    if len(model.predicting_layers) > 1:
        expected = norm.updates(vectors @ translators["output", layer].weight.T)
        torch.testing.assert_close(lens.updates(vectors, layer), expected, atol=1e-4, rtol=1e-4)
        chunks = torch.cat([chunk.clone() for chunk in lens.value_chunks(layer)])
        torch.testing.assert_close(chunks, lens.values(layer), atol=1e-4, rtol=1e-4)
        logits = lens.values(layer)
        torch.testing.assert_close(lens.token_logits(layer, 9), logits[:, 9] - logits.mean(-1), atol=1e-4, rtol=1e-4)
    last = model.layers - 1
    assert torch.equal(lens.states(vectors, last, "output"), norm.states(vectors, last, "output"))
    assert torch.equal(lens.updates(vectors, last), norm.updates(vectors, last))


def test_a_lens_of_another_shape_is_refused(tmp_path):
    model = make_memory_model(tiny.make("llama"))
    translators = random_translators(model)
    del translators["residual", 2]
    with pytest.raises(LensError, match="expected a matrix of 12 × 12 for the residual of layer 2"):
        model.lens("tuned", saved(tmp_path, "tuned", translators))
    with pytest.raises(LensError, match="needs the study that it was saved with"):
        model.lens("tuned")
    with pytest.raises(LensError, match=r"has no jacobian lens yet.*ffscope lens MODEL --study"):
        model.lens("jacobian", tmp_path)


def training(model, *, steps=8, patience=99, every=2):
    text = TrainingText([SENTENCES[:2]] * steps, SENTENCES[2:])
    return Training(model, text, Schedule(steps, patience, every), BOS)


@pytest.mark.parametrize("name", ["llama", "gemma2", "bert", "t5", "adaptive_lm"])
def test_training_begins_with_the_norm_lens_and_improves_on_the_sentences_it_is_trained_on(name):
    model = make_memory_model(tiny.make(name))
    trained = training(model, steps=60, every=60)
    trained.text.validation[:] = SENTENCES[:2]
    trained._validation = trained._rows(SENTENCES[:2])
    for key, change in trained._changes.items():
        weight, bias = change.translator()
        assert torch.equal(weight, torch.eye(12))
        assert not bias.any()
        states, target = trained._validation.states[key], trained.lens.logits(trained._validation.last).log_softmax(-1)
        plain = torch.nn.functional.kl_div(
            trained.lens.logits(states).log_softmax(-1), target, log_target=True, reduction="batchmean"
        )
        trained.first_losses[key] = trained.losses[key] = plain.item()
    trained.run(lambda: None)
    for key in trained.keys:
        assert trained.losses[key] < 0.8 * trained.first_losses[key] or trained.first_losses[key] < 1e-3


def test_the_gradient_is_that_of_the_divergence():
    model = make_memory_model(tiny.make("gemma2"))
    trained = training(model, steps=1)
    rows = trained._rows(trained.text.steps[0])
    target = trained._probabilities(rows.last)
    change = trained._changes["residual", 0]
    logits = model.lens().head_logits(model.lens().head_input(change(rows.states["residual", 0])))
    loss = torch.nn.functional.kl_div(logits.log_softmax(-1), target, reduction="batchmean")
    expected = torch.autograd.grad(loss, [change.weight, change.bias])
    trained._optimizer.step = lambda: None
    trained._make_step()
    torch.testing.assert_close(change.weight.grad, expected[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(change.bias.grad, expected[1], atol=1e-5, rtol=1e-4)


def test_training_resumes_from_any_step():
    model = make_memory_model(tiny.make("llama"))
    whole = training(model)
    states = []
    whole.run(lambda: states.append(whole.state()))
    for state in (states[0], states[4]):
        resumed = training(model)
        resumed.load(state)
        resumed.run(lambda: None)
        for key in whole.keys:
            assert torch.equal(resumed.best[key].weight, whole.best[key].weight)
            assert torch.equal(resumed.best[key].bias, whole.best[key].bias)
        assert resumed.losses == whole.losses


def test_training_stops_when_nothing_improves(monkeypatch):
    monkeypatch.setattr("ffscope.translators.tuned._RATE", 0.0)
    trained = training(make_memory_model(tiny.make("llama")), steps=20, patience=2, every=3)
    trained.run(lambda: None)
    assert trained.step == 6
    assert all(torch.equal(translator.weight, torch.eye(12)) for translator in trained.best.values())


@pytest.fixture(scope="module", params=["opt", "llama", "t5"])
def case(request, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lens")
    model = make_memory_model(tiny.make(request.param), tokenizer)
    corpus = CorpusOptions(corpus=str(write_corpus(folder / "corpus.jsonl")), max_tokens=30)
    triggers(model, corpus, folder / "study", search=SearchOptions(top=3))
    return request.param, model, analyse("lens", model, folder / "study", **SHORT)


def test_training_text_has_each_sentence_once_per_round_and_nothing_held_out(case):
    _, _, study = case
    table = pq.read_table(study.path("sentences.parquet"), columns=["tokens", "held_out"]).to_pylist()
    searched = sorted(tuple(row["tokens"]) for row in table if not row["held_out"])
    total = sum(map(len, searched))
    text = training_text(study, steps=2 * total // 50, tokens=50, validation=100, seed=0)
    used = [tuple(sentence.tolist()) for step in text.steps for sentence in step]
    held = [tuple(sentence.tolist()) for sentence in text.validation]
    assert sorted([*held, *used[: len(searched) - len(held)]]) == searched
    assert 60 < sum(map(len, held)) <= 100
    again = training_text(study, steps=3, tokens=50, validation=100, seed=0)
    assert [list(map(tuple, step)) for step in again.steps] == [list(map(tuple, step)) for step in text.steps[:3]]
    assert 30 <= np.mean([sum(map(len, step)) for step in text.steps]) <= 70


def test_a_step_that_is_shorter_than_the_longest_sentence_has_one(case):
    _, _, study = case
    text = training_text(study, steps=5, tokens=1, validation=100, seed=0)
    assert len(text.steps) == 5
    assert all(text.steps)


@torch.no_grad()
def test_the_table_is_what_plain_transformers_gives(case):
    name, model, study = case
    rows = pq.read_table(study.path("lenses.parquet")).to_pylist()
    examples = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", True)]).to_pylist()
    drawn = drawn_examples(study)
    files = {lens: load_file(study.path(f"lenses/{lens}.safetensors")) for lens in ("tuned", "jacobian")}
    tokens = {row["sentence"]: np.array(row["tokens"]) for row in examples}
    for row in rows:
        losses, same, outputs = [], [], []
        for sentence, position in drawn:
            ids = tokens[sentence] if not model.causal else tokens[sentence][: position + 1]
            trace = model.trace(plain_ids(name, ids))
            target = trace.logits[0, position + 1].log_softmax(-1)
            readings = []
            for of in ("residual", "output"):
                state = getattr(trace, of)[row["layer"]][0, position + 1]
                key = f"{of}.{row['layer']}"
                if row["lens"] in files and f"{key}.weight" in files[row["lens"]]:
                    state = files[row["lens"]][f"{key}.weight"] @ state + files[row["lens"]][f"{key}.bias"]
                lens = "raw" if row["lens"] == "raw" else "norm"
                readings.append(model.lens(lens).states(state, row["layer"]).log_softmax(-1))
            losses.append((target.exp() * (target - readings[0])).sum().item())
            outputs.append((target.exp() * (target - readings[1])).sum().item())
            same.append(readings[0].argmax() == target.argmax())
        assert row["examples"] == len(drawn) == 20
        assert row["divergence"] == pytest.approx(np.mean(losses), abs=1e-4, rel=1e-4)
        assert row["output_divergence"] == pytest.approx(np.mean(outputs), abs=1e-4, rel=1e-4)
        assert row["residual_agreement"] == pytest.approx(np.mean(same))
        half = 1.959964 * np.std(losses, ddof=1) / np.sqrt(20)
        assert row["divergence_high"] - row["divergence"] == pytest.approx(half, abs=1e-4, rel=1e-3)
        if row["lens"] in files:
            matrix = files[row["lens"]][f"residual.{row['layer']}.weight"]
            assert row["distance"] == pytest.approx(float((matrix - torch.eye(12)).norm() / 12**0.5), rel=1e-5)


def drawn_examples(study):
    from ffscope.search.example_pass import draw_examples

    examples = draw_examples(study, 20, study.settings["seed"])
    return list(zip(examples.sentence.tolist(), examples.position.tolist(), strict=True))


@torch.no_grad()
def test_agreement_and_rank_are_those_of_the_values(case):
    _name, model, study = case
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "==", 1)]).to_pylist()
    for row in pq.read_table(study.path("lenses.parquet")).to_pylist():
        after = {t["memory"]: t["next_token"] for t in table if t["layer"] == row["layer"] and t["next_token"] >= 0}
        logits = model.lens(row["lens"], study.folder).values(row["layer"])
        ranks = [1 + int((logits[memory] > logits[memory, token]).sum()) for memory, token in after.items()]
        assert row["memories"] == len(ranks)
        assert row["agreement"] == pytest.approx(np.mean([rank == 1 for rank in ranks]))
        assert row["next_rank"] == pytest.approx(np.median(ranks))


def test_the_jacobian_is_the_mean_over_sentences_of_the_examples(case):
    _name, model, study = case
    tokens = pq.read_table(study.path("sentences.parquet"), columns=["sentence", "tokens"]).to_pylist()
    tokens = {row["sentence"]: np.array(row["tokens"]) for row in tokens}
    numbers = sorted({sentence for sentence, _ in drawn_examples(study)})
    order = np.random.default_rng([study.settings["seed"], *b"jacobian"]).permutation(numbers)[:3]
    means = [sentence_jacobians(model, tokens[int(number)], BOS) for number in order]
    file = load_file(study.path("lenses/jacobian.safetensors"))
    for of, layer in translated_states(model):
        expected = sum(jacobians[of, layer] for jacobians in means) / 3
        torch.testing.assert_close(file[f"{of}.{layer}.weight"], expected, atol=1e-6, rtol=1e-5)
        assert not file[f"{of}.{layer}.bias"].any()


def test_an_interrupted_training_ends_with_the_same_bytes(case, tmp_path, monkeypatch):
    _, model, study = case
    copy = Study.open(shutil.copytree(study.folder, tmp_path / "study"))
    shutil.rmtree(copy.path("lenses"))
    copy.path("lenses.parquet").unlink()
    monkeypatch.setattr("ffscope.analysis.lens._SAVE_EVERY", 0.0)
    for stop in (3, 8):

        def interrupt(progress, stop=stop):
            if progress.stage == "tuned lens" and progress.done == 3 and stop == 3:
                raise KeyboardInterrupt
            if progress.stage == "jacobian lens" and progress.done == 2 and stop == 8:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            analyse("lens", model, copy.folder, progress=interrupt, **SHORT)
        assert not copy.path("lenses.parquet").exists()
    analyse("lens", model, copy.folder, **SHORT)
    for file in ("lenses/tuned.safetensors", "lenses/jacobian.safetensors", "lenses.parquet"):
        assert copy.path(file).read_bytes() == study.path(file).read_bytes(), file
    assert not copy.path(".lens").exists()


def test_lenses_are_learned_from_a_corpus_alone_and_compared_again_after_a_search(tokenizer, tmp_path):
    model = make_memory_model(tiny.make("llama"), tokenizer)
    corpus = CorpusOptions(corpus=str(write_corpus(tmp_path / "corpus.jsonl")), max_tokens=30)
    study = learn_lenses(model, tmp_path / "study", corpus, **SHORT)
    rows = pq.read_table(study.path("lenses.parquet")).to_pylist()
    assert {row["lens"] for row in rows} == {"norm", "raw", "tuned", "jacobian"}
    assert all(row["agreement"] is None for row in rows)
    tuned = study.path("lenses/tuned.safetensors").read_bytes()
    with pytest.raises(StudyError, match="is a study with bos"):
        triggers(model, corpus, tmp_path / "study", search=SearchOptions(top=3, bos=False))
    triggers(model, corpus, tmp_path / "study", search=SearchOptions(top=3))
    study = learn_lenses(model, tmp_path / "study")
    assert all(row["memories"] > 0 for row in pq.read_table(study.path("lenses.parquet")).to_pylist())
    assert study.path("lenses/tuned.safetensors").read_bytes() == tuned


def test_a_run_with_a_learned_lens_learns_it_first_and_reads_everything_through_it(tokenizer, tmp_path):
    model = make_memory_model(tiny.make("llama"), tokenizer)
    corpus = CorpusOptions(corpus=str(write_corpus(tmp_path / "corpus.jsonl")), max_tokens=30)
    options = {**SMALL, **SHORT, "encoder": "model", "lens": "tuned"}
    with undrawn():
        study = run(model, corpus, tmp_path / "study", search=SearchOptions(top=3), **options)
    assert all(entry["done"] for entry in study.manifest["stages"].values()), study.manifest["stages"]
    lens = model.lens("tuned", study.folder)
    values = pq.read_table(study.path("values.parquet"), filters=[("layer", "==", 1)]).to_pylist()
    assert [row["top_tokens"][0] for row in values] == lens.values(1).argmax(-1).tolist()
    assert "lenses" in study.path("summary.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lens_steps": -1}, "lens_steps is -1"), ({"lens_patience": 0}, "lens_patience is 0")],
)
def test_wrong_options_are_refused(case, options, message):
    with pytest.raises(InputError, match=message):
        analyse("lens", case[1], case[2].folder, **options)


def test_without_held_out_text_nothing_is_learned(tokenizer, tmp_path, monkeypatch):
    model = make_memory_model(tiny.make("opt"), tokenizer)
    corpus = CorpusOptions(corpus=str(write_corpus(tmp_path / "corpus.jsonl", documents=3)), max_tokens=30)
    monkeypatch.setattr("ffscope.analysis.lens.training_text", None)
    with pytest.raises(CorpusError, match="There are no held-out examples"):
        learn_lenses(model, tmp_path / "study", corpus, **SHORT)


def test_other_models_and_models_without_a_head_are_refused(case, tokenizer, tmp_path):
    _, _, study = case
    with pytest.raises(StudyError, match="is a study of another model"):
        analyse("lens", make_memory_model(tiny.make("gpt2"), tokenizer), study.folder, **SHORT)
    headless = make_memory_model(tiny.make("llama").model, tokenizer)
    corpus = CorpusOptions(corpus=str(write_corpus(tmp_path / "corpus.jsonl")), max_tokens=30)
    with pytest.raises(LensError, match="no unembedding"):
        learn_lenses(headless, tmp_path / "study", corpus, **SHORT)
    with pytest.raises(StudyError, match="is not a study"):
        learn_lenses(headless, tmp_path / "nothing", **SHORT)
