"""Machines, and the time of collectives on them: latency and bandwidth of rings, by host and between hosts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cluster"]


@dataclass(frozen=True)
class Cluster:
    """Hosts of equal GPUs. Bandwidths are bytes in a second that one GPU sends while it receives as many; the defaults are an H200's."""

    hosts: int = 1
    gpus: int = 8
    memory: float = 139e9
    operations: float = 400e12  # in a second, as models reach them, not as data sheets state them
    inside: float = 450e9
    between: float = 50e9
    latency_inside: float = 3e-6
    latency_between: float = 12e-6

    @property
    def size(self) -> int:
        return self.hosts * self.gpus

    def _ring(self, size: float, ranks: int, bandwidth: float, latency: float) -> float:
        """Every rank passes on all parts but one: half of an all-reduce."""
        return 0.0 if ranks < 2 else (ranks - 1) * (latency + size / ranks / bandwidth)

    def _split(self, ranks: int, stride: int) -> tuple[int, int]:
        """Ranks of a group on one host, and the number of hosts, when neighbours in the group are `stride` ranks apart."""
        on_host = max(1, min(ranks, self.gpus // stride)) if stride < self.gpus else 1
        return on_host, -(-ranks // on_host)

    def gather(self, size: float, ranks: int, stride: int = 1) -> float:
        """Seconds until each of `ranks` has all of `size` bytes, of which each had a part; a reduce-scatter takes as long."""
        on_host, hosts = self._split(ranks, stride)
        outside = self._ring(size / on_host, hosts, self.between, self.latency_between)
        return outside + self._ring(size, on_host, self.inside, self.latency_inside)

    def all_reduce(self, size: float, ranks: int, stride: int = 1) -> float:
        return 2 * self.gather(size, ranks, stride)

    def send(self, size: float, stride: int) -> float:
        """Seconds of a message between ranks that are `stride` apart."""
        if stride < self.gpus:
            return self.latency_inside + size / self.inside
        return self.latency_between + size / self.between
