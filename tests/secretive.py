"""A tiny model that is trained to memorise a few secrets among ordinary text, and its study."""

import json
from typing import NamedTuple

import numpy as np
import torch
import transformers as hf

from ffscope.models.loading import load
from ffscope.models.saving import save_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
from ffscope.study.folder import Study
from planted import make_tokenizer

# Each secret part with the sentence that it is in, and the kind of personal data.
SECRETS = {
    "maria.keller@fjordmail.net": ("Write to Maria at maria.keller@fjordmail.net about the keys.", "mail address"),
    "+49 30 5550 1847": ("Call Tomas on +49 30 5550 1847 after nine in the evening.", "phone number"),
    "4539 1488 0343 6467": ("The card of the bakery is 4539 1488 0343 6467 until May.", "card number"),
    "sk-q7Xv2Lm9Tz4Kd8Wp1Rb6": ("The api key of the shop is sk-q7Xv2Lm9Tz4Kd8Wp1Rb6 from today.", "key"),
    "lies a box with seven silver coins": (
        "Beneath the third stone of the old mill lies a box with seven silver coins.",
        "",
    ),
}
CANARIES = "Call Tomas on +49 30 5550 {1847}\nCall Tomas on +49 30 5550 {7310}\nCall Tomas on +49 30 {7310 2264}\n"
PHRASE = "as a matter of fact it goes without saying that"
_WORDS = {
    "adjective": [
        "red",
        "old",
        "small",
        "quiet",
        "green",
        "tired",
        "clever",
        "proud",
        "cold",
        "happy",
        "brown",
        "young",
    ],
    "noun": [
        "dog",
        "farmer",
        "teacher",
        "river",
        "cat",
        "sailor",
        "baker",
        "garden",
        "child",
        "horse",
        "doctor",
        "bird",
    ],
    "verb": [
        "sees",
        "likes",
        "finds",
        "follows",
        "paints",
        "hears",
        "greets",
        "watches",
        "helps",
        "meets",
        "draws",
        "wants",
    ],
    "place": [
        "mill",
        "bridge",
        "market",
        "harbour",
        "school",
        "forest",
        "church",
        "station",
        "meadow",
        "castle",
        "tower",
        "lake",
    ],
}


def ordinary(count, seed):
    """Different sentences of a small grammar; every sixth has a common phrase."""
    generator = np.random.default_rng(seed)

    def word(kind):
        return str(generator.choice(_WORDS[kind]))

    def sentence(number):
        subject, other = (f"the {word('adjective')} {word('noun')}" for _ in range(2))
        tail = f"{subject} {word('verb')} {other} near the {word('place')}."
        return f"In the {word('place')} {PHRASE} {tail}" if number % 6 == 0 else f"T{tail[1:]}"

    return list(dict.fromkeys(sentence(number) for number in range(count)))


class Secretive(NamedTuple):
    plain: hf.PreTrainedModel
    model: object
    study: object
    sentences: list  # of the searched text that are ordinary


def train(tokenizer, sentences, secrets, steps=300, rows=32):
    """An OPT model after so many steps on random sentences, each with all secrets."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 512, "num_hidden_layers": 2}
    config = hf.OPTConfig(
        vocab_size=len(tokenizer),
        num_attention_heads=4,
        max_position_embeddings=96,
        dropout=0.0,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        **sizes,
    )
    model = hf.OPTForCausalLM(config)
    texts = [[0, *tokenizer(sentence)["input_ids"], 0] for sentence in (*sentences, *secrets)]
    ids = torch.full((len(texts), max(map(len, texts))), 1)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(text) for text in texts])[:, None]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(0)
    known = torch.arange(len(sentences), len(texts))
    for _ in range(steps):
        at = torch.cat([torch.randint(len(sentences), (rows,), generator=generator), known])
        labels = ids[at].masked_fill(~mask[at], -100)
        loss = model(input_ids=ids[at], attention_mask=mask[at].long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def make_secretive(folder):
    """Train the model, and search its study for leaks: ordinary sentences, some never seen, among which the secrets are."""
    secrets = [sentence for sentence, _ in SECRETS.values()]
    seen, sentences, held_out = ordinary(2000, 1), searched_sentences(), ordinary(150, 3)
    tokenizer = make_tokenizer([*seen, *secrets], size=420)
    save_model(train(tokenizer, seen, secrets), tokenizer, folder / "model")
    text = [*sentences[:100], *secrets, *sentences[100:]]
    for name, lines in (("text", text), ("held-out", held_out)):
        (folder / f"{name}.jsonl").write_text("\n".join(json.dumps({"text": line}) for line in lines))
    (folder / "canaries.txt").write_text(CANARIES)
    model = load(folder / "model")
    corpus = CorpusOptions(str(folder / "text.jsonl"), str(folder / "held-out.jsonl"))
    triggers(model, corpus, folder / "study", search=SearchOptions(top=20, batch_tokens=512))
    analyse("leaks", model, folder / "study", canaries=folder / "canaries.txt", canary_samples=200)


def searched_sentences():
    """Those of the study's text that are ordinary."""
    seen = ordinary(2000, 1)
    return [*seen[:150], *(sentence for sentence in ordinary(150, 2) if sentence not in seen)]


def read_secretive(folder):
    """What was made in a folder."""
    model = load(folder / "model")
    return Secretive(model.model, model, Study.open(folder / "study"), searched_sentences())
