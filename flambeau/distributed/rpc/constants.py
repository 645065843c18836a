"""Defaults of the agent."""

from datetime import timedelta

__all__: list[str] = []

DEFAULT_RPC_TIMEOUT_SEC = 60.0
DEFAULT_INIT_METHOD = "env://"
DEFAULT_SHUTDOWN_TIMEOUT = 0.0
DEFAULT_NUM_WORKER_THREADS = 16
DEFAULT_PROCESS_GROUP_TIMEOUT = timedelta(minutes=30)
UNSET_RPC_TIMEOUT = -1.0
