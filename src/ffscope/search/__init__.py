"""The search for triggers: plan (what is read, in which batches) → execute (a model over batches) → merge → write (tables).

What is kept while batches run is in `accumulators`; `engines` holds the ways to run a plan.
"""
