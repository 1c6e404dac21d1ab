"""The endpoints of IAT over HTTP and WebSocket."""
