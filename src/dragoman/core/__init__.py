"""The vocabulary that all other packages share: the model, operations, events and errors. It does
no I/O."""
