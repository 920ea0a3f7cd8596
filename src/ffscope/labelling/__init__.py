"""Labels by a language model behind HTTP, and the test of these labels on held-back prefixes. No torch."""
