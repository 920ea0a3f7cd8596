"""What a study shows: one module per figure (series, chart, sentence), and a page to read and send. No torch."""
