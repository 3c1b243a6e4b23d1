"""How far off are corrected scores? Contaminated models with clean twins, which have the truth."""
