"""Removes the items of benchmarks from corpora by a rule, and the forms in which items leak."""
