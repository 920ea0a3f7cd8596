"""Read fairseq checkpoints of adaptive language models, without fairseq."""
