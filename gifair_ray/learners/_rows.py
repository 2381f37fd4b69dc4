"""The samples of many clients as rows of one matrix, from which stacks are gathered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from gifair_ray.federation import SPLITS, Federation, Split
from gifair_ray.learners import _common

Ints = npt.NDArray[np.int64]
ALIGNED = 64  # bytes


class Rows:
    """Inputs and labels, a row per sample, derived when a client is first needed.

    An input is `width` long: the sample's `features` numbers, a constant 1, and zeros. Row 0 is
    nobody's and all zeros. The matrix takes `limit_bytes`, or what is asked for at once if that is
    more; when it is full everybody is forgotten. Memory that was never written is never taken.
    """

    def __init__(
        self, federation: Federation, dtype: np.dtype[np.floating], features: int, width: int
    ) -> None:
        self._federation, self._dtype = federation, dtype
        self._features, self._width = features, width
        population = federation.population
        self._sizes = {split: population.sizes(split) for split in SPLITS}
        self._all = sum(self._sizes.values(), np.zeros(len(population), dtype=np.int64))
        self._start = {split: np.zeros(len(population), dtype=np.int64) for split in SPLITS}
        self.resize(_common.CACHE_BYTES)

    def resize(self, limit_bytes: int) -> None:
        """Forget everybody, and take up to so many bytes from now on."""
        most = int(self._all.sum()) + 1
        self._allocate(min(most, limit_bytes // (self._width * self._dtype.itemsize)))

    def _allocate(self, rows: int) -> None:
        self._capacity = max(1, rows)
        n, spare = self._capacity * self._width, ALIGNED // self._dtype.itemsize
        memory = np.zeros(n + spare, dtype=self._dtype)  # pages that stay untouched cost nothing
        first = -memory.ctypes.data % ALIGNED // self._dtype.itemsize
        self.x = torch.from_numpy(memory[first : first + n]).view(self._capacity, self._width)
        self.y = torch.from_numpy(np.zeros(self._capacity, dtype=np.int64))
        self._forget()

    def _forget(self) -> None:
        for start in self._start.values():
            start[:] = -1
        self._used = 1

    def sizes(self, clients: Ints, split: Split) -> Ints:
        """Samples of each client."""
        return np.asarray(self._sizes[split][clients])

    def starts(self, clients: Ints, split: Split) -> Ints:
        """The first row of each client's samples; good until the next call."""
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
            for client in missing.tolist():
                self._add(client)
        return np.asarray(start[clients])

    def _add(self, client: int) -> None:
        shard = self._federation.shard(client)
        x, y = self.x.numpy(), self.y.numpy()
        for split in SPLITS:
            samples = getattr(shard, split)
            at, self._used = self._used, self._used + len(samples)
            self._start[split][client] = at
            if len(samples):
                x[at : self._used, : self._features] = samples.x.reshape(-1, self._features)
                x[at : self._used, self._features] = 1.0
                y[at : self._used] = samples.y
