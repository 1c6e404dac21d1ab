"""The HTTP server: routes, exchanges and server-sent events over ASGI."""
