"""Running passes: from texts to tokens, batches, windows and statistics."""
