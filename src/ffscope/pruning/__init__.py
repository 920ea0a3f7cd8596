"""Which memories a model can do without.

`contributions` and `redundancy` are the scores that need the model, `scored` computes them, and `ranking` has the order that each
score gives. `curves` are the points at which the loss is measured, `written` writes a model without the first of an order, `speed`
says how fast it is.
"""
