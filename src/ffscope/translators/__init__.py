"""Learns the affine maps of learned lenses: translators trained on a text, and mean Jacobians; and compares the lenses."""
