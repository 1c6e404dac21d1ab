"""Commands that talk to agents."""
