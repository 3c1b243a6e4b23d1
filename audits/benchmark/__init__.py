"""The audit of a set of questions: did they leak into a model?"""
