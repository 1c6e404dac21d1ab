"""Moves everything that a store holds to another store."""
