"""CPU seconds and memory of a process and everything that it started (Linux: from /proc)."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from pathlib import Path

from gifair_ray.errors import BadInput

_TICKS = os.sysconf("SC_CLK_TCK")


def _stats() -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, for every process; the parent's id is [1]."""
    found = {}
    if not Path("/proc/self/stat").exists():
        raise BadInput("gifair bench reads /proc, and this machine has none: it needs Linux")
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                text = Path("/proc", entry, "stat").read_text()
                found[int(entry)] = text.rpartition(")")[2].split()
    return found


def _tree(root: int, stats: dict[int, list[str]]) -> list[int]:
    children = defaultdict(list)
    for pid, fields in stats.items():
        children[int(fields[1])].append(pid)
    members, at = [root], 0
    while at < len(members):
        members += children[members[at]]
        at += 1
    return [pid for pid in members if pid in stats]


def descendants(root: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    return _tree(root, _stats())[1:]


def cpu_seconds(root: int) -> float:
    """User and system time so far, of living members and of those whose parents saw them end."""
    stats = _stats()
    return sum(sum(map(int, stats[pid][11:15])) for pid in _tree(root, stats)) / _TICKS


def pss_bytes(root: int) -> int:
    """Proportional set size: pages that n processes share count 1/n in each."""
    total = 0
    for pid in _tree(root, _stats()):
        with contextlib.suppress(OSError):
            for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
    return total
