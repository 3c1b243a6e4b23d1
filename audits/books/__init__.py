"""The audit of books: which of them, and what share of each, was trained on.

After Shi et al. (2024, section 5) and Raoof et al. (2025, section 4.4.3): random snippets of books
known to be in the training data, and of books known not to be, choose a method and a threshold. The
contamination rate of a suspect is the share of its snippets above the threshold. Neither paper
corrects this rate for false alarms or tests it. Here `rates` corrects and tests it, and the report
compares it with a classifier that never sees the model.
"""
