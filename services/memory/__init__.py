"""Memory: what users said, kept as turns, profile facts, episode notes, summaries and readings."""
