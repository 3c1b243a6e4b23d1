"""Exports of a contaminated corpus to the file formats of other trainers, with its ledger."""
