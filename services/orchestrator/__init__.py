"""The conversation service: load memory, retrieve, reason, verify, save, and show every step."""
