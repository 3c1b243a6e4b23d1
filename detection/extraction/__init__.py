"""What the model gives back word for word: `python -m detection extraction`."""
