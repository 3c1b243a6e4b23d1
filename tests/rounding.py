"""How far float32 may carry two computations of one number apart.

Another batch, number of threads or processes, kernel or processor sums in another order. Each sum
rounds by a few units in the last place of the largest number in it, whatever is left in the end: a
log-probability near 0 is a difference of large logits.
"""

import numpy as np

EPSILON = float(np.finfo(np.float32).eps)
LARGEST = 32.0  # nats: the tests' models have no larger logit, log-probability or loss
FORWARD = 16 * EPSILON * LARGEST
"""Nats, of a token or of a mean over tokens, by one model in two forwards."""
TRAINING = 64 * EPSILON * LARGEST
"""The same by two trainings of some dozens of steps."""
LONG_TRAINING = 8 * TRAINING
"""The same of some hundreds of steps: each carries on the differences of those before."""
