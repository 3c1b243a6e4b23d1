"""The law of detectability: how far a copy shifts a score, and what that makes detectable."""
