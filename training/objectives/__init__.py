"""What a step moves the weights by: one file an objective, named here."""

OBJECTIVES = ("likelihood", "ascent", "difference", "npo", "relabel")
"""`training.objective`; all but the first are unlearners, and the corpus is what they forget."""
