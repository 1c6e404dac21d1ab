"""The words everybody shares: the model, operations, events and errors. Pure, no I/O."""
