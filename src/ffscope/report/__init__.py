"""What a study shows: its series with their intervals, the paper's figures, and a page to read and send. No torch."""
