"""Workers by name: local, or ray:N."""

import importlib.util

from genepool.environments.task import Task
from genepool.errors import UserError
from genepool.protocols import Workers
from genepool.workers.local import LocalWorkers


def worker_count(workers: str) -> int | None:
    """N of "ray:N"; None for "local"."""
    kind, _, count = workers.partition(":")
    if workers == "local":
        return None
    if kind != "ray" or not count.isdigit() or int(count) < 1:
        raise UserError(f"there are no workers {workers!r}: choose local, or ray:N for N workers of a Ray cluster")
    if importlib.util.find_spec("ray") is None:
        raise UserError("Ray is not installed: pip install 'genepool[cluster]', or use --workers local")
    return int(count)


def open_workers(workers: Workers | str, task: Task, address: str | None = None) -> Workers:
    """The workers of this name. Workers that are objects already are returned as they are."""
    if not isinstance(workers, str):
        return workers
    count = worker_count(workers)
    if count is None:
        return LocalWorkers(task)
    from genepool.workers.ray.driver import RayWorkers

    return RayWorkers(task, count, address)
