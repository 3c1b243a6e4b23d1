"""The objectives of training and unlearning, one file per objective."""

OBJECTIVES = ("likelihood", "ascent", "difference", "npo", "relabel")
"""Values of `training.objective`; all except the first unlearn the corpus."""
