"""fairseq's checkpoints of adaptive language models, read without fairseq."""
