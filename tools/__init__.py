"""Tools of the repository itself; no service and no client imports them."""
