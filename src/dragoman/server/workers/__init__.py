"""Several processes that serve the same port: one parent, and its workers."""

from .worker_process import WorkerProcess, current_worker, settings_of_worker

__all__ = ["WorkerProcess", "current_worker", "settings_of_worker"]
