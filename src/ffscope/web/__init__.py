"""The explorer: a study in the browser."""
