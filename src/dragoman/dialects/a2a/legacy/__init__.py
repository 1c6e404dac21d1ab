"""A2A before 0.3, and the flavours of it that others speak."""
