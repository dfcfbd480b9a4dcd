"""gRPC plumbing: server, client channels, health, one interceptor a file."""
