"""A2A before 0.3, and the variants of it that other implementations speak."""
