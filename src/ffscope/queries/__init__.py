"""Every question asked of a finished study, answered from its files alone: no model, no torch.

Each takes a study's folder, the study, or its tables where they are open already.
"""

from ffscope.queries.memory import MemoryPage, Value, memory_page
from ffscope.queries.patterns import Found, PatternExample, pattern_examples
from ffscope.queries.prefixes import Place, Trigger, first_triggers, prefixes_at, trigger_places
from ffscope.queries.tables import Tables, checked, reading, spellings
from ffscope.queries.values import PredictiveValue, predictive_values

__all__ = [
    "Found",
    "MemoryPage",
    "PatternExample",
    "Place",
    "PredictiveValue",
    "Tables",
    "Trigger",
    "Value",
    "checked",
    "first_triggers",
    "memory_page",
    "pattern_examples",
    "predictive_values",
    "prefixes_at",
    "reading",
    "spellings",
    "trigger_places",
]
