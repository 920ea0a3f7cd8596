"""A synthetic study of the paper's size, made without a model: 16 layers × 4,096 memories, 50 triggers each."""

import numpy as np
import pyarrow as pa

from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

LAYERS, MEMORIES, TOP, WORDS, LENGTH = 16, 4096, 50, 50_000, 30
_ALL = LAYERS * MEMORIES
_AT_ONCE = 1024  # sentences of a row group, as the search writes them
_SETTINGS = {
    **{"corpus": "made", "held_out": None, "max_tokens": 128, "language": "en", "field": "text", "dedupe": True},
    **{"top": TOP, "prefixes": "best", "bos": True, "layers": None, "memories": None, "negative": False, "seed": 0},
    **{"batch_tokens": 2048, "histogram_edges": [2.0**k for k in range(-8, 13)], "lens": "norm", "minutes": None},
}


def make(folder, sentences=1_000_000):
    """Random words, frequent and rare as in a language; every table that the explorer reads."""
    rolled = np.random.default_rng(0)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(rolled.choice(letters, rolled.integers(2, 9))) for _ in range(WORDS)], dtype=object)
    tokens = np.minimum(rolled.zipf(1.2, (sentences, LENGTH)) - 1, WORDS - 1).astype(np.int32)
    with Study.writing(folder, _model()) as study:
        study.manifest["corpus"] = {"source": "made", "documents": sentences // 20, "sentences": sentences}
        _write(study, "vocabulary", token=np.arange(WORDS), text=[f"␣{word}" for word in words])
        _write_text(study, tokens, words)
        _write_triggers(study, tokens, rolled)
        _write_memories(study, sentences, rolled)
        _write_patterns(study, words, rolled)
        for stage, facts in _stages(sentences).items():
            study.finish(stage, _SETTINGS, seconds=1.0, **facts)
    return study


def _model():
    sizes = {"layers": LAYERS, "memories": [MEMORIES] * LAYERS, "hidden": 1024, "vocab": WORDS}
    return {
        "source": "made",
        "family": "gpt2",
        **sizes,
        "dtype": "float32",
        "gated": False,
        "causal": True,
        "fingerprint": "0",
    }


def _stages(sentences):
    counted = {"sentences": sentences, "prefixes": sentences * LENGTH}
    labelled = {"encoder": None, "encoder_asked": None, "encoder_fingerprint": "", "pattern_triggers": 25}
    return {"sentences": {}, "triggers": counted, "values": {}, "agreement": {}, "patterns": labelled}


def _write(study, name, *, group=None, **columns):
    schema = SCHEMAS[f"{name}.parquet"]
    table = pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}, schema=schema)
    with study.table(f"{name}.parquet") as writer:
        writer.write_table(table, row_group_size=group)


def _write_text(study, tokens, words):
    documents = len(tokens) // 20
    titles = [f"document {number}" for number in range(documents)]
    _write(
        study,
        "documents",
        document=np.arange(documents),
        title=titles,
        topic=[None] * documents,
        held_out=[False] * documents,
    )
    schema = SCHEMAS["sentences.parquet"]
    with study.table("sentences.parquet") as writer:
        for start in range(0, len(tokens), _AT_ONCE):
            rows = tokens[start : start + _AT_ONCE]
            numbers = np.arange(start, start + len(rows))
            spelt = words[rows]
            ends = [np.cumsum([len(word) + (i > 0) for i, word in enumerate(row)]) for row in spelt]
            columns = {
                **{"sentence": numbers, "document": numbers // 20, "paragraph": numbers * 0, "next_token": numbers * 0},
                **{"text": [" ".join(row) for row in spelt], "tokens": list(rows), "ends": ends},
                "held_out": [False] * len(rows),
            }
            arrays = {field.name: pa.array(columns[field.name], field.type) for field in schema}
            writer.write_table(pa.table(arrays, schema=schema))


def _write_triggers(study, tokens, rolled):
    count = _ALL * TOP
    rank = np.tile(np.arange(1, TOP + 1), _ALL)
    sentence, position = rolled.integers(0, len(tokens), count), rolled.integers(0, LENGTH - 1, count)
    _write(
        study,
        "triggers",
        group=65_536,
        layer=np.repeat(np.arange(LAYERS), MEMORIES * TOP),
        memory=np.tile(np.repeat(np.arange(MEMORIES), TOP), LAYERS),
        rank=rank,
        coefficient=10 / rank,
        sentence=sentence,
        position=position,
        next_token=tokens[sentence, position + 1],
    )


def _write_memories(study, sentences, rolled):
    names = {"layer": np.repeat(np.arange(LAYERS), MEMORIES), "memory": np.tile(np.arange(MEMORIES), LAYERS)}
    _write(
        study,
        "memories",
        **names,
        seen=np.full(_ALL, 15_628),
        fired=rolled.integers(0, 15_000, _ALL),
        mean=rolled.random(_ALL),
        maximum=np.full(_ALL, 10.0),
        histogram=list(rolled.integers(0, 900, (_ALL, 45))),
        sample_coefficients=list(-np.sort(-rolled.random((_ALL, 10)))),
        sample_sentences=list(rolled.integers(0, sentences, (_ALL, 10))),
        sample_positions=list(rolled.integers(0, LENGTH - 1, (_ALL, 10))),
    )
    promoted, probabilities = rolled.integers(0, WORDS, (_ALL, 20)), -np.sort(-rolled.random((_ALL, 20)) / 20)
    rank = rolled.integers(1, WORDS, _ALL)
    value = {"max_prob": probabilities[:, 0], "next_rank": rank}
    _write(
        study,
        "values",
        group=MEMORIES,
        **names,
        **value,
        norm=rolled.random(_ALL),
        top_tokens=list(promoted),
        top_probs=list(probabilities),
        bottom_tokens=list(rolled.integers(0, WORDS, (_ALL, 20))),
    )
    counted = {"triggers": np.full(_ALL, TOP), "precision": rolled.random(_ALL), "agrees": rolled.random(_ALL) < 0.05}
    _write(study, "agreement", **names, **value, **counted, top_token=promoted[:, 0], next_token=promoted[:, 1])


def _write_patterns(study, words, rolled):
    count = 3 * _ALL
    _write(
        study,
        "patterns",
        layer=np.repeat(np.arange(LAYERS), MEMORIES * 3),
        memory=np.tile(np.repeat(np.arange(MEMORIES), 3), LAYERS),
        pattern=np.tile([1, 2, 3], _ALL),
        kind=rolled.choice(["shallow", "semantic"], count),
        description=[f"ends with *{word}*" for word in words[rolled.integers(0, WORDS, count)]],
        covers=[[1, 2, 3, 4]] * count,
        support=np.full(count, 4),
        p_value=rolled.random(count) / 1000,
        annotator=["machine"] * count,
        detection=[None] * count,
    )
