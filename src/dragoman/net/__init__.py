"""The wires: they move frames and know no protocol rules."""
