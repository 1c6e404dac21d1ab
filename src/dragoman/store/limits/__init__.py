"""Limits that the processes of a store share: of runs, and of what callers use."""
