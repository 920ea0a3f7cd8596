"""The study folder: atomic writes of its files, resumable tables, and reading the results."""
