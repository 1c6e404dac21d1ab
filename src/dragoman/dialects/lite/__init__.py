"""A2A-Lite: agents that meet in a chat room, with a small marker before natural language."""
