"""Finds what the triggers of a memory have in common. Only `prefix_embeddings` needs torch."""
