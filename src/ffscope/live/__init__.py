"""Run prompts through one loaded model: what it predicts and why, with and without interventions."""
