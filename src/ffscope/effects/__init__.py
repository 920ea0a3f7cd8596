"""What a model would lose without a memory: effects on the loss, estimated from gradients or measured by ablation.

`texts` are the examples as inputs, `readout` the loss at them, `estimate` the effects of all memories to first order, `sums` their
accumulation, `ablation` the exact effects of some memories, and of groups of them.
"""
