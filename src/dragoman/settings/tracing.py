"""`[tracing]`: spans for OpenTelemetry."""

from __future__ import annotations

from msgspec import Struct


class Tracing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tracing]`: spans for OpenTelemetry. Everything else is set by its own variables, such as
    OTEL_EXPORTER_OTLP_ENDPOINT."""

    enabled: bool = False
    """Whether spans are made; needs the extra `otel`."""
    service: str = "dragoman"
    """The name of the service, unless OTEL_SERVICE_NAME is set or the program has a tracer provider
    of its own."""
