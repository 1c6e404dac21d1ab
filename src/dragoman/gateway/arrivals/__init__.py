"""Agents that come to the gateway by themselves: they register, dial in, or are met in a room."""
