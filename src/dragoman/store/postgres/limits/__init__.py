"""The limits that processes share, on PostgreSQL."""
