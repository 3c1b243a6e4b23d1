"""What a step moves the weights by: one file an objective."""
