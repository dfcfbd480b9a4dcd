"""Every helper of the clients, written once: Python arguments in, request message out.

``Client`` and ``AsyncClient`` bind these; the signature and the docstring are shared. Anything not
covered here is called on the generated stubs, e.g. ``client.memory.ListTurns(request)``.

Wherever ``request_id`` is left out a fresh one is made; pass your own to be able to repeat a write.
"""
