"""The strong reference attack: K models that differ in their members alone judge one another.

Shapes in this package: K cells (models), N examples of their common pool. `doses[k, i]` says how
often example i was inserted in cell k; 0: a non-member (OUT). `phi[k, i]` is a statistic of the
example under the model, such as its mean log-probability. Each attack scores example i under target
k from the other K − 1 cells (its references): row k of what it returns never reads column k of
`phi` and `doses` but for the score that is judged.
"""
