"""A2A over gRPC: codecs for both sides and both packages."""
