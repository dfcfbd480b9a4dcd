"""The reasoner: a model behind a small protocol, a bounded tool loop, and an answer without a
model.
"""
