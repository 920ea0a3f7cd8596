"""Read any transformer as key–value memories. Only this package knows transformers' module names."""
