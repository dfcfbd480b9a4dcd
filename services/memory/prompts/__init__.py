"""Prompts as modules: pure functions from data to messages, with golden tests."""
