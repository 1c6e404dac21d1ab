"""The registry of a server: search, registration, and calls by skill."""
