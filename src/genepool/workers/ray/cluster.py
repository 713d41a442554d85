"""Starts a Ray cluster on this machine, or joins one. The caller passes the module `ray`."""

import os
import secrets
import signal
import socket
import threading
import warnings
from types import ModuleType

from genepool.errors import UserError


def start(ray: ModuleType, count: int) -> None:
    """Start a cluster that listens on 127.0.0.1 only, and asks for a token that only this process has."""
    os.environ.pop("RAY_AUTH_MODE", None)  # without it Ray asks for tokens, even if it was imported before
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    constants = ray._private.ray_constants
    enabled = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False  # else Ray listens on the network's address
    try:
        _init(ray, address="local", num_cpus=count, include_dashboard=False)
    finally:
        constants.ENABLE_RAY_CLUSTER = enabled
    if ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise UserError("this version of Ray listens on the network: run pip install 'genepool[cluster]' again")


def join(ray: ModuleType, address: str) -> None:
    """Join the cluster at this address. Its token is in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."""
    try:
        host, _, port = address.rpartition(":")
        if port.isdigit() and "/" not in address:  # fails at once: Ray would try for a minute, and print
            socket.create_connection((host, int(port)), timeout=10.0).close()
        _init(ray, address=address)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"cannot join the cluster {address!r}: {str(error).strip().splitlines()[0]}") from error


def _listen_to_nothing(*_: object) -> None:
    """Takes the place of Ray's thread that prints errors of workers."""


def _init(ray: ModuleType, **options: object) -> None:
    handler = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    # Ray prints about dead workers at every log level. Our own messages say what matters.
    internals = ray._private.worker
    listen = internals.listen_error_messages
    internals.listen_error_messages = _listen_to_nothing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX warns of forks: Ray forks only to start programs
            ray.init(log_to_driver=False, logging_level="error", **options)
    finally:
        internals.listen_error_messages = listen
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
