"""Annotations of memories by people, stored apart from what programs find and never overwritten. No torch."""
