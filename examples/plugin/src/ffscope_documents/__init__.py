"""A stage for ffscope: the share of a memory's triggers that come from one document."""
