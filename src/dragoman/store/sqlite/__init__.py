"""`sqlite:///path` keeps tasks in a SQLite file, the default."""
