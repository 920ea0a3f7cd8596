"""The streaming search for triggers: plan → execute → merge → write. Its memory does not grow with the corpus."""
