"""`python -m detection view`: examples token by token, from stored passes."""
