"""How the process of a server uses memory and the scheduler."""
