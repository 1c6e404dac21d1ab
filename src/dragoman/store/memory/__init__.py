"""`memory:` keeps tasks as long as the process lives."""
