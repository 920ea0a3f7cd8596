"""Text → documents → sentences → batches of tokens."""
