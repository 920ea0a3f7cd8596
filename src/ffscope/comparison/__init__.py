"""Two models side by side: how their memories are paired, and how similar pairs, and the models' predictions, are."""
