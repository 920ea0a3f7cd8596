"""The study folder: what stages leave in it, whole or not at all, and how it is read back."""
