"""Labelled benchmarks of real models' pretraining data: their parts and rows."""
