"""Models behind servers: requests, log-probabilities from the answers, and stored answers."""
