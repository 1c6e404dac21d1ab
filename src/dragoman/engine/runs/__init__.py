"""One run of one task: it executes the author's code and writes its events to the store."""
