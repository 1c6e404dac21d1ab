"""`file:///folder` keeps each task as a readable log."""
