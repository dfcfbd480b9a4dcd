"""What the orchestrator adds to a chat: time, first token, streams at once, tokens."""
