"""One run of one task: the author's code, what it says, and the way of that into the store."""
