"""HTTP: routes, exchanges and server-sent events over ASGI."""
