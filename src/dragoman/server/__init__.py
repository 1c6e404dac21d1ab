"""Serves agents: the ASGI app, the process around it, and the loader of an author's file."""
