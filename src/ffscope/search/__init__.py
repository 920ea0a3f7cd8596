"""What is kept of a stream of coefficients while it passes: the highest, a sample, and counts. None of it grows with the stream."""
