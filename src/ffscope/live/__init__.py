"""What a web explorer asks of a loaded model."""
