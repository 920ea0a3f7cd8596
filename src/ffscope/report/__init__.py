"""The report: one module per figure (series, chart, sentences, findings), and a page to read and send. No torch."""
