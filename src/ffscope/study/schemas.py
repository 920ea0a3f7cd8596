"""The columns of a study's tables."""

import pyarrow as pa

_INT, _REAL, _LIST = pa.int32(), pa.float32(), pa.list_(pa.int32())
_TRIGGERS = pa.schema(
    [
        ("layer", _INT),
        ("memory", _INT),
        ("rank", _INT),
        ("coefficient", _REAL),
        ("sentence", _INT),
        ("position", _INT),
        ("next_token", _INT),
    ]
)
SCHEMAS = {
    "documents.parquet": pa.schema(
        [("document", _INT), ("title", pa.string()), ("topic", pa.string()), ("held_out", pa.bool_())]
    ),
    "sentences.parquet": pa.schema(
        [
            ("sentence", _INT),
            ("document", _INT),
            ("paragraph", _INT),
            ("text", pa.string()),
            ("tokens", _LIST),
            ("ends", _LIST),
            ("next_token", _INT),
            ("held_out", pa.bool_()),
        ]
    ),
    "vocabulary.parquet": pa.schema([("token", _INT), ("text", pa.string())]),
    "triggers.parquet": _TRIGGERS,
    "negative_triggers.parquet": _TRIGGERS,
    "memories.parquet": pa.schema(
        [
            ("layer", _INT),
            ("memory", _INT),
            ("seen", pa.int64()),
            ("fired", pa.int64()),
            ("mean", _REAL),
            ("maximum", _REAL),
            ("histogram", _LIST),
            ("sample_coefficients", pa.list_(_REAL)),
            ("sample_sentences", _LIST),
            ("sample_positions", _LIST),
        ]
    ),
    "values.parquet": pa.schema(
        [
            ("layer", _INT),
            ("memory", _INT),
            ("norm", _REAL),
            ("top_tokens", _LIST),
            ("top_probs", pa.list_(_REAL)),
            ("max_prob", _REAL),
            ("bottom_tokens", _LIST),
            ("next_rank", _INT),
        ]
    ),
    "agreement.parquet": pa.schema(
        [
            ("layer", _INT),
            ("memory", _INT),
            ("top_token", _INT),
            ("next_token", _INT),
            ("agrees", pa.bool_()),
            ("next_rank", _INT),
            ("max_prob", _REAL),
            ("triggers", _INT),
            ("precision", _REAL),
        ]
    ),
    "mutation.parquet": pa.schema(
        [
            ("layer", _INT),
            ("memory", _INT),
            ("rank", _INT),
            ("removed", pa.string()),
            ("removed_index", _INT),
            ("coefficient", _REAL),
            ("mutated", _REAL),
            ("change", _REAL),
        ]
    ),
    "examples.parquet": pa.schema(
        [
            ("example", _INT),
            ("sentence", _INT),
            ("position", _INT),
            ("prediction", _INT),
            ("target", _INT),
            ("text", pa.string()),
        ]
    ),
    "composition.parquet": pa.schema(
        [
            ("example", _INT),
            ("layer", _INT),
            ("active", _INT),
            ("active_fraction", _REAL),
            ("effective", _INT),
            ("ff_top", _INT),
            ("matches", _INT),
        ]
    ),
    "refinement.parquet": pa.schema(
        [
            ("example", _INT),
            ("layer", _INT),
            ("residual_top", _INT),
            ("ff_top", _INT),
            ("output_top", _INT),
            ("residual_prob", _REAL),
            ("residual_rank", _INT),
            ("case", pa.string()),
        ]
    ),
    "last_layer.parquet": pa.schema(
        [
            ("example", _INT),
            ("residual_top", _INT),
            ("output_top", _INT),
            ("similarity", _REAL),
            ("related", pa.bool_()),
        ]
    ),
    "patterns.parquet": pa.schema(
        [
            ("layer", _INT),
            ("memory", _INT),
            ("pattern", _INT),
            ("kind", pa.string()),
            ("description", pa.string()),
            ("covers", _LIST),
            ("support", _INT),
            ("p_value", pa.float64()),
            ("annotator", pa.string()),
            ("detection", _REAL),
        ]
    ),
}
