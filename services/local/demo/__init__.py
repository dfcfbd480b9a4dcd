"""`make demo`: the whole path on real input, checked by itself."""
