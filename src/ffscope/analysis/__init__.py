"""The computations of the stages, one module per stage. They do not import each other; they share the study folder."""
