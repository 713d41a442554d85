"""A Ray cluster: one of our own on this machine, or somebody's that we join. Ray itself is handed in."""

import os
import secrets
import signal
import socket
import threading
import warnings
from typing import Any

from genepool.errors import UserError


def start(ray: Any, count: int) -> None:
    """A cluster that listens on 127.0.0.1 alone and asks for a token, which is in this process's environment alone."""
    os.environ.pop("RAY_AUTH_MODE", None)  # without it Ray turns tokens on, even if it was imported before
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    constants = ray._private.ray_constants
    remote, constants.ENABLE_RAY_CLUSTER = constants.ENABLE_RAY_CLUSTER, False  # else Ray takes the network's address
    try:
        _init(ray, address="local", num_cpus=count, include_dashboard=False)
    finally:
        constants.ENABLE_RAY_CLUSTER = remote
    if ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise UserError("this version of Ray cannot be kept to this machine: pip install 'genepool[cluster]' again")


def join(ray: Any, address: str) -> None:
    """Become a driver of the cluster at this address; its token comes from RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."""
    try:
        host, _, port = address.rpartition(":")
        if port.isdigit() and "/" not in address:  # Ray itself would try for a minute, and talk
            socket.create_connection((host, int(port)), timeout=10.0).close()
        _init(ray, address=address)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise UserError(f"cannot join the cluster {address!r}: {str(error).strip().splitlines()[0]}") from error


def _init(ray: Any, **options: Any) -> None:
    handler = signal.getsignal(signal.SIGTERM)  # Ray sets its own
    # what Ray tells of workers that died goes to standard output whatever its log level: we say what matters ourselves
    inner = ray._private.worker
    listen, inner.listen_error_messages = inner.listen_error_messages, lambda *_: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # JAX's, that Ray forks: it does so only to start programs
            ray.init(log_to_driver=False, logging_level="error", **options)
    finally:
        inner.listen_error_messages = listen
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
