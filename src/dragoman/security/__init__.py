"""Authentication, authorization, limits, signatures, and guarded outbound HTTP."""
