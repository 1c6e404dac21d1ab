"""The gRPC server, an optional extra that listens on its own port."""
