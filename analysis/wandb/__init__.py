"""The estimates in Weights & Biases, and read back from there."""
