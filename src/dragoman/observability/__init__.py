"""Logs, metrics, health checks and the watchdog for code that blocks the event loop."""
