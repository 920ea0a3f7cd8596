"""One loaded model that answers prompts: what it predicts and why, with interventions or without."""
