"""The services of a server and of its agents."""
