"""What stores on the disk of one machine have in common."""
