"""The transports of the client, one for each wire: HTTP, WebSocket and gRPC."""
