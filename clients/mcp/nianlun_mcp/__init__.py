"""Nianlun as an MCP server: memory and knowledge as tools for any assistant that speaks MCP.

Five tools (recall, remember, forget, search, ask) over stdio or streamable HTTP. Every call acts
with the caller's own key and for one user, whom the operator or the connection names, never the
model. What is recalled is handed over as data.
"""
