"""The blind baseline, which never sees a model, and the AUROC after matching on it."""
