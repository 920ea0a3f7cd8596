"""One loaded model answering requests: about a prompt, why it predicts what it does, with interventions, and generated text."""
