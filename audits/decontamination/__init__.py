"""Judges rules of decontamination by what is left after the cells are trained again."""
