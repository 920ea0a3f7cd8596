"""The streaming search for triggers: plan → execute → merge → write. What is kept does not grow with the text."""
