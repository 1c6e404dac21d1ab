"""gRPC, an extra, on a port of its own."""
