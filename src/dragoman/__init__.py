"""Write an agent once, speak every agent-to-agent dialect."""
