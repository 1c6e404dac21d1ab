"""`dragoman.app:create_app` is what ASGI servers are given; the app itself is `dragoman.server`."""

from dragoman.server.app import App
from dragoman.server.create_app import create_app

__all__ = ["App", "create_app"]
