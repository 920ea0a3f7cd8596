"""Any transformer as key–value memories. The only place that knows transformers' module names."""
