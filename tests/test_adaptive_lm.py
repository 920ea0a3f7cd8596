"""The paper's own model: its cheap paths against the whole distribution, its words, and a study of it from end to end."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

import ffscope
import fullsize
import tiny
from ffscope.cli import app
from ffscope.corpus.documents import Corpus
from ffscope.corpus.tokenizing import is_word_level
from ffscope.live.model import Live
from ffscope.models.fairseq.dictionary import SYMBOLS, make_tokenizer
from ffscope.models.ranking import ranked
from ffscope.models.unembedding import make_unembedding
from ffscope.options.corpus import CorpusOptions
from ffscope.pipeline import triggers
from ffscope.study.folder import Study
from splitting import split

PAPER = Path(__file__).parent / "golden" / "fairseq" / "paper"
NAMES = ["adaptive_lm", "adaptive_lm untied", "adaptive_lm post-norm"]
TOKENS = """
 = Robert <unk> = 

 Robert <unk> is 5 @.@ 5 ft tall . He had a guest @-@ starring role , he said . 

 = = Career = = 

 It took 1 @,@ 000 days . 
"""  # noqa: W291 - as WikiText is


@pytest.fixture(params=NAMES)
def hf_model(request):
    return tiny.make(request.param)


def states(hf_model, count=200, size=2.0):
    return size * torch.randn(count, hf_model.adaptive_softmax.width, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_probabilities_add_up_to_one(hf_model):
    torch.testing.assert_close(hf_model.adaptive_softmax(states(hf_model)).exp().sum(-1), torch.ones(200))


@torch.no_grad()
@pytest.mark.parametrize("count", [1, 2, 10, 40, 66, 67, 100])
@pytest.mark.parametrize("size", [0.0, 0.1, 2.0, 40.0])
def test_the_top_words_are_those_of_the_whole_distribution(hf_model, count, size):
    some = states(hf_model, size=size)
    assert torch.equal(hf_model.adaptive_softmax.top(some, count), ranked(hf_model.adaptive_softmax(some), count))


@torch.no_grad()
def test_equal_words_are_ranked_by_id(hf_model):
    """Words of a band have equal logits if their rows are equal."""
    for parameter in hf_model.adaptive_softmax.parameters():
        parameter.zero_()
    for parameter in hf_model.embed_tokens.parameters():
        parameter.zero_()
    some = states(hf_model)
    assert torch.equal(hf_model.adaptive_softmax.top(some, 30), ranked(hf_model.adaptive_softmax(some), 30))


@torch.no_grad()
def test_a_tail_whose_class_is_unlikely_is_not_read(hf_model, monkeypatch):
    softmax = hf_model.adaptive_softmax
    read = []
    monkeypatch.setattr(softmax, "_tail", lambda *args, tail=softmax._tail: read.append(len(args[0])) or tail(*args))
    some = states(hf_model, size=40.0)
    softmax.top(some)
    assert 0 < sum(read) < len(softmax.tail) * len(some)


@torch.no_grad()
def test_a_few_words_have_the_log_probabilities_of_the_whole_distribution(hf_model):
    some = states(hf_model)
    tokens = torch.randint(tiny.VOCAB, (len(some), 7), generator=torch.Generator().manual_seed(4))
    expected = hf_model.adaptive_softmax(some).gather(1, tokens)
    torch.testing.assert_close(hf_model.adaptive_softmax.log_probs_of(some, tokens), expected)
    alone = hf_model.adaptive_softmax.log_probs_of(some, tokens.clamp_max(5))  # no tail is needed
    torch.testing.assert_close(alone, hf_model.adaptive_softmax(some).gather(1, tokens.clamp_max(5)))


@torch.no_grad()
def test_rows_of_the_unembedding_give_the_plain_product(hf_model):
    head = make_unembedding(hf_model.adaptive_softmax)
    some = states(hf_model)
    rows = head.rows(torch.arange(tiny.VOCAB))
    torch.testing.assert_close(head.raw_logits(some), some @ rows.T, rtol=1e-4, atol=1e-4)
    order = torch.tensor([60, 3, 30, 3])
    torch.testing.assert_close(head.rows(order), rows[order])


@torch.no_grad()
def test_both_lenses_give_the_same_top_tokens_with_and_without_all_logits(hf_model):
    model = ffscope.read(hf_model)
    some = torch.randn(300, 12, generator=torch.Generator().manual_seed(5))
    for name in ("norm", "raw"):
        lens = model.lens(name)
        assert torch.equal(lens.state_tops(some, 0), lens.states(some, 0).argmax(-1))
        assert torch.equal(lens.update_tops(some), lens.updates(some).argmax(-1))
    assert not model.lens("norm").linear
    assert model.lens("raw").linear


def test_bands_in_half_precision_are_read_in_float32():
    hf_model = tiny.make("adaptive_lm untied").bfloat16()
    lens = ffscope.read(hf_model).lens("norm")
    read = lens.values(0)
    assert read.dtype == torch.float32
    assert len(set(read[0].tolist())) == tiny.VOCAB  # bfloat16 would have fewer
    assert hf_model(torch.tensor([[2, 5, 6]])).logits.dtype == torch.float32


@pytest.mark.parametrize(("a", "b"), [("#5", "#9"), ("#45", "#60"), ("#5", "#45"), ("#30", "#60")])
def test_why_adds_up_within_a_band_and_says_where_it_does_not(a, b):
    words = [*SYMBOLS, *(f"w{number}" for number in range(tiny.VOCAB - 4))]
    live = Live(ffscope.read(tiny.make("adaptive_lm"), make_tokenizer(words, bos="</s>")), bos=True)
    why = live.why("w1 w2 w50", a=a, b=b, count=1000)
    parts = why.start + why.bias + sum(layer.ff + layer.rest for layer in why.layers)
    assert parts == pytest.approx(why.total, rel=1e-3, abs=1e-4)
    apart = {a, b} in ({"#5", "#45"}, {"#30", "#60"})
    assert (why.note is not None) is apart
    assert (why.total == pytest.approx(why.difference, abs=1e-4)) is not apart
    trace = live.model.trace("w1 w2 w50")
    logits, state = trace.logits[0, -1], trace.output[-1][0, -1]
    assert why.difference == pytest.approx((logits[why.a.id] - logits[why.b.id]).item(), abs=1e-4)
    own = [normaliser(live.model.model, state, token.id) for token in (why.a, why.b)]
    assert why.total == pytest.approx(why.difference + own[0] - own[1], abs=1e-4)


@torch.no_grad()
def normaliser(hf_model, state, token):
    """The log-normaliser that a tail subtracts from its words in addition to the head's; 0 for the head."""
    band = sum(token >= cutoff for cutoff in hf_model.config.input_cutoffs)
    rows, widening = (part.weight for part in hf_model.embed_tokens.embeddings[band])
    return (state @ widening @ rows.T).logsumexp(-1).item() if band else 0.0


def test_generated_text_is_that_of_single_passes():
    words = [*SYMBOLS, *(f"w{number}" for number in range(tiny.VOCAB - 4))]
    model = ffscope.read(tiny.make("adaptive_lm"), make_tokenizer(words, bos="</s>"))
    written = Live(model, bos=True).generate("w1 w2", new_tokens=5).before
    ids, expected = model.encode("w1 w2")["input_ids"], []
    for _ in range(5):
        token = model.forward({"input_ids": ids}).logits[0, -1].argmax()
        ids = torch.cat([ids, token.reshape(1, 1)], 1)
        expected.append(f"␣{words[int(token)]}")
        if token == 2:
            break
    assert written == expected


# Words.


def test_wikitext_stays_as_it_is_for_a_model_that_reads_words(tmp_path):
    (tmp_path / "wiki.tokens").write_text(TOKENS, encoding="utf-8")
    words, plain = (
        [" ".join(document.paragraphs) for document in Corpus(str(tmp_path / "wiki.tokens"), pretokenized=words)]
        for words in (True, False)
    )
    assert words == [
        "Robert <unk> is 5 @.@ 5 ft tall . He had a guest @-@ starring role , he said . It took 1 @,@ 000 days ."
    ]
    assert plain == ["Robert <unk> is 5.5 ft tall. He had a guest-starring role, he said. It took 1,000 days."]


def test_a_point_in_a_number_ends_no_sentence():
    words = [*SYMBOLS, *["Robert", "is", "5", "@.@", "ft", "tall", ".", "He", "had"]]
    text = "Robert <unk> is 5 @.@ 5 ft tall . He had <unk> ."
    (sentences,), _ = split(make_tokenizer(words, bos="</s>"), text, max_tokens=128)
    assert [sentence.text for sentence in sentences] == ["Robert <unk> is 5 @.@ 5 ft tall .", "He had <unk> ."]
    assert sentences[0].tokens == [4, 3, 5, 6, 7, 6, 8, 9, 10]
    assert [sentences[0].text[:end].split()[-1] for end in sentences[0].ends] == sentences[0].text.split()
    assert sentences[1].next_token == 2


def test_only_a_word_level_tokenizer_reads_words(tokenizer):
    assert is_word_level(make_tokenizer([*SYMBOLS, "a"], bos="</s>"))
    assert not is_word_level(tokenizer)


def test_many_unknown_words_are_reported(tmp_path, caplog):
    (tmp_path / "text.txt").write_text("\n".join(f"the strange{n}, words{n}." for n in range(40)), encoding="utf-8")
    triggers(ffscope.load(PAPER, "cpu"), CorpusOptions(str(tmp_path / "text.txt")), tmp_path / "study")
    assert "67 % of the words are not in the model's dictionary" in caplog.text


# From end to end.


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study of the paper's shape over random articles of its own words, made by the command line."""
    folder = tmp_path_factory.mktemp("paper")
    words = [line.split(" ")[0] for line in (PAPER / "dict.txt").read_text(encoding="utf-8").split("\n") if line]
    words = [word for word in words if word.isalpha()]
    pick = torch.Generator().manual_seed(7)
    with (folder / "wiki.train.tokens").open("w", encoding="utf-8") as out:
        for number in range(60):
            drawn = [words[i] for i in torch.randint(len(words), (30,), generator=pick).tolist()]
            print(f" = Article {number} = \n\n {' '.join(drawn[:14])} . \n {' '.join(drawn[14:])} <unk> . \n", file=out)
    arguments = ["run", str(PAPER), "--corpus", str(folder / "wiki.train.tokens"), "--out", str(folder / "study")]
    ran = CliRunner().invoke(
        app,
        [
            *arguments,
            "--examples",
            "50",
            "--mutation-memories",
            "3",
            "--mutation-triggers",
            "4",
            "--effect-memories",
            "0",
        ],
    )
    assert ran.exit_code == 0, ran.output
    return folder / "study"


def test_a_run_makes_the_papers_study(study):
    manifest = json.loads((study / "study.json").read_text())
    assert manifest["model"]["family"] == "adaptive_lm"
    for stage in ("triggers", "values", "agreement", "mutation", "composition", "refinement", "report"):
        assert manifest["stages"][stage]["done"], stage
    texts = pq.read_table(study / "sentences.parquet")
    assert all(text.endswith(" .") for text in texts["text"].to_pylist())
    assert 3 in texts["tokens"].to_pylist()[1]  # <unk> is its own word


def test_a_study_of_a_checkpoint_resumes_with_the_converted_model(study, tmp_path):
    corpus, converted = str(study.parent / "wiki.train.tokens"), str(tmp_path / "made")
    for arguments in (
        ["triggers", str(PAPER), "--corpus", corpus, "--out", str(tmp_path / "study")],
        ["convert", str(PAPER), "--out", converted],
        ["values", str(tmp_path / "study"), "--model", converted, "--lens", "raw"],
        ["triggers", converted, "--corpus", corpus, "--out", str(tmp_path / "again")],
    ):
        ran = CliRunner().invoke(app, arguments)
        assert ran.exit_code == 0, (ran.output, ran.exception)
    tables = [pq.read_table(tmp_path / name / "triggers.parquet") for name in ("study", "again")]
    assert tables[0].equals(tables[1])


@pytest.mark.slow
def test_a_checkpoint_of_the_papers_size_is_checked_and_searched_within_8_gb(tmp_path):
    fullsize.write_checkpoint(tmp_path)
    corpus = fullsize.write_corpus(tmp_path / "wiki.train.tokens", 1100)
    command = [sys.executable, "-m", "ffscope"]
    subprocess.run([*command, "check", str(tmp_path)], check=True)
    arguments = [
        "triggers",
        str(tmp_path),
        "--corpus",
        str(corpus),
        "--out",
        str(tmp_path / "study"),
        "--sentences",
        "1000",
    ]
    subprocess.run([*command, *arguments], check=True)
    manifest = Study.open(tmp_path / "study").manifest
    assert manifest["corpus"]["searched"]["sentences"] == 1000
    assert manifest["model"]["memories"] == [4096] * 16
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 8e9 / 1024
