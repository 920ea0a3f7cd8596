"""Types of memories by published definitions, one module per family of types."""
