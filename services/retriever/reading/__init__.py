"""Readers: bytes or text of a document in, title, text and blocks out. No gRPC, no SQL.

`read(source)` in `reader.py` is the one entry; a file per format stands beside it.
"""
