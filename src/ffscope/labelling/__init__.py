"""A language model, asked over HTTP, that names patterns and is held to what it said. No torch."""
