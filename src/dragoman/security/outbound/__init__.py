"""Outbound HTTP: addresses are checked, resolved and called within limits."""
