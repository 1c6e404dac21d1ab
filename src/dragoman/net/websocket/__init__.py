"""WebSockets: what comes in, what goes out, and asking over them."""
