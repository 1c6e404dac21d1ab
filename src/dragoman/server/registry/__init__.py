"""The registry as a server offers it: searches, registrations, and calls by skill."""
