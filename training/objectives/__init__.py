"""The objectives of training and unlearning, one file per objective."""

OBJECTIVES = ("likelihood", "ascent", "difference", "npo", "simnpo", "rmu", "idk_dpo", "relabel")
"""Values of `training.objective`; all but the first are unlearners, which forget the corpus."""
