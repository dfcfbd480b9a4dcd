"""Prompts as modules: one per intent, one for what all share, one that assembles them."""
