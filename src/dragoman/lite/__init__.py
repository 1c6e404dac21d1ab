"""A2A-Lite: agents that live in chat rooms, and agents that are met there."""
