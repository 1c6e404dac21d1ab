"""Calls to addresses that others gave us: checked, resolved and bounded."""
