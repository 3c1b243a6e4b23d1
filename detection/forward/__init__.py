"""The passes at work: texts become tokens, batches, windows and statistics."""
