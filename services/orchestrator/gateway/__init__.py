"""The HTTP gateway: OpenAI-compatible endpoints, JSON for every RPC, and the console."""
