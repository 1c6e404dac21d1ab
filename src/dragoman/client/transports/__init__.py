"""One way to reach an agent each: HTTP and gRPC."""
