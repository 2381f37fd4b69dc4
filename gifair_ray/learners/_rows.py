"""The samples of many clients as rows of one matrix, from which stacks are gathered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from gifair_ray.federation import SPLITS, Federation, Pooling, Split
from gifair_ray.learners import _common

Ints = npt.NDArray[np.int64]
ALIGNED = 64  # bytes
INDEX_BYTES = 8


class Rows:
    """Inputs and labels, a row per sample, derived when a client is first needed.

    An input is `width` long: the sample's `features` numbers, a constant 1, and zeros. Row 0 is
    nobody's and all zeros. A client's samples have numbers, one after the other; `rows` says in
    which rows they are. Where clients share a pool, that is all that is kept of a client, and else
    a row of its own for each. That takes `limit_bytes`, or what is asked for at once if that is
    more; when it is full everybody is forgotten. Memory that was never written is never taken.
    """

    def __init__(
        self, federation: Federation, dtype: np.dtype[np.floating], features: int, width: int
    ) -> None:
        self._federation, self._dtype = federation, dtype
        self._features, self._width = features, width
        self._pooled = federation if isinstance(federation, Pooling) else None
        population = federation.population
        self._sizes = {split: population.sizes(split) for split in SPLITS}
        self._all = sum(self._sizes.values(), np.zeros(len(population), dtype=np.int64))
        self._start = {split: np.zeros(len(population), dtype=np.int64) for split in SPLITS}
        if self._pooled is not None:
            self._matrix(1 + len(self._pooled.pool))
            self._put(1, self._pooled.pool.x, self._pooled.pool.y)
        self.resize(_common.CACHE_BYTES)

    def resize(self, limit_bytes: int) -> None:
        """Forget everybody, and take up to so many bytes from now on."""
        most = int(self._all.sum()) + 1
        each = INDEX_BYTES if self._pooled is not None else self._width * self._dtype.itemsize
        self._allocate(min(most, limit_bytes // each))

    def _allocate(self, samples: int) -> None:
        self._capacity = max(1, samples)
        if self._pooled is None:
            self._matrix(self._capacity)
        else:
            self._row = np.zeros(self._capacity, dtype=np.int64)
        self._forget()

    def _matrix(self, rows: int) -> None:
        n, spare = rows * self._width, ALIGNED // self._dtype.itemsize
        memory = np.zeros(n + spare, dtype=self._dtype)  # pages that stay untouched cost nothing
        first = -memory.ctypes.data % ALIGNED // self._dtype.itemsize
        self.x = torch.from_numpy(memory[first : first + n]).view(rows, self._width)
        self.y = torch.from_numpy(np.zeros(rows, dtype=np.int64))

    def _put(self, at: int, inputs: npt.NDArray[np.generic], labels: Ints) -> None:
        x, y = self.x.numpy(), self.y.numpy()
        here = slice(at, at + len(labels))
        x[here, : self._features] = inputs.reshape(-1, self._features)
        x[here, self._features] = 1.0
        y[here] = labels

    def _forget(self) -> None:
        for start in self._start.values():
            start[:] = -1
        self._used = 1

    def sizes(self, clients: Ints, split: Split) -> Ints:
        """Samples of each client."""
        return np.asarray(self._sizes[split][clients])

    def starts(self, clients: Ints, split: Split) -> Ints:
        """The number of each client's first sample; good until the next call."""
        start = self._start[split]
        if (start[clients] < 0).any():
            missing = np.unique(clients[start[clients] < 0])
            if self._used + int(self._all[missing].sum()) > self._capacity:
                missing = np.unique(clients)
                need = 1 + int(self._all[missing].sum())
                if need > self._capacity:
                    self._allocate(need)
                else:
                    self._forget()
            if self._pooled is not None:
                self._hold(self._pooled, missing)
            else:
                for client in missing.tolist():
                    self._add(client)
        return np.asarray(start[clients])

    def rows(self, samples: Ints) -> Ints:
        """Where the samples with these numbers are."""
        return samples if self._pooled is None else np.take(self._row, samples)

    def _hold(self, pooled: Pooling, clients: Ints) -> None:
        for split in SPLITS:
            at, n = self._used, int(self._sizes[split][clients[0]])  # all have as many
            self._start[split][clients] = at + np.arange(len(clients)) * n
            if n:
                self._used += n * len(clients)
                self._row[at : self._used] = 1 + pooled.held(clients, split).reshape(-1)

    def _add(self, client: int) -> None:
        shard = self._federation.shard(client)
        for split in SPLITS:
            samples = getattr(shard, split)
            at, self._used = self._used, self._used + len(samples)
            self._start[split][client] = at
            if len(samples):
                self._put(at, samples.x, samples.y)
