"""Rerankers: one file each. Pair models score query and document together; late interaction does
not.
"""
