"""Retriever: collections of documents, ingestion, hybrid search, re-embedding under load."""
