"""Task accuracy of members against non-members: `python -m detection accuracy`."""
