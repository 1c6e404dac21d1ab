"""The wires of the server, which move frames and know no protocol rules."""
