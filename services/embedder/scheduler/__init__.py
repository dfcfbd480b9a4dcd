"""Which texts go into the next forward pass. Pure: no torch, no grpc, no clock of its own."""
