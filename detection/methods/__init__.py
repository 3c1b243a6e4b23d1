"""The methods, one file each: a frozen dataclass of hyperparameters with a pure NumPy score."""
