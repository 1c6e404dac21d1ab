"""Commands that make, serve and show agents."""
