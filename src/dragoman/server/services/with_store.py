"""The services of a whole server that need its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dragoman.net.service import Service
from dragoman.security.call_policy import meters_of

from ..agent_mount import Shared
from ..workers import current_worker

if TYPE_CHECKING:
    from dragoman.gateway.registry import Registry
    from dragoman.store import Store

    from ..app import App


def services_with(
    app: App, shared: Shared, store: Store, worker: Callable[[], str], registry: Registry | None
) -> list[Service]:
    """Returns the chat rooms of the settings, and what shares the rates and quotas of callers with
    other processes on the store."""
    found: list[Service] = []
    if shared.settings.channels:
        from .rooms import room_services

        found += room_services(app, shared, store, registry)
    meters = [meter for meter in (shared.meter, *meters_of(shared.policies)) if meter.limits]
    if meters and store.shared:
        from .shared_budgets import SharedBudgets

        several = current_worker() is not None
        found.append(SharedBudgets(meters, store.budgets, worker, never_alone=several))
    return found
