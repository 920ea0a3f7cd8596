"""A stage for ffscope: the share of a memory's triggers that stand in one document."""
