"""What people write about memories: kept apart from what the machine finds, and never overwritten by it. No torch."""
