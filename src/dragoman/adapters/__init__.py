"""Bridges to frameworks: one short module for each. None of them is installed with Dragoman, and a
module here imports its framework only when it is itself imported."""
