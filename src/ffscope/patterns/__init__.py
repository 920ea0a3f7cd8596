"""Finds what the triggers of a memory have in common. Only `embed_words` needs torch."""
