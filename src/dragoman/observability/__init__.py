"""What operators see: logs, metrics, health, and code that blocks the loop."""
