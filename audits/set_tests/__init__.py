"""Set tests: does a model know this *set* of texts? Every test whose ingredients a corpus has.

Each test is in a file named after it: the statistic and its p-value, from scores alone. A higher
score means that the model knows the text better. `runs.py` applies them to the cells of a sweep,
whose ledger tells the truth, and counts how often each is right.
"""
