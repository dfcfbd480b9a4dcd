"""Speed and behaviour of the embedder: `python -m benchmarks.embed` (QUICK=1 for a short run)."""
