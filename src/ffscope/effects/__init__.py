"""What a model would lose without a memory: effects on the loss, estimated from gradients or measured by ablation.

`texts` are the examples as inputs, `readout` the loss at them and its gradients, `baseline` what coefficients are set to.
`estimate` has the effects of all memories to first order, `direct` their direct parts, `sums` and `estimated` what is kept of
them. `ablation` runs the model without single memories, `exact` compares that with the estimates, `groups` takes many memories
away at once. `shards` adds it all up.
"""
