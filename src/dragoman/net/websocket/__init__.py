"""The WebSocket server: reading, writing, and calls in both directions."""
