"""Day and night: a client is likeliest to be online at some hour of its own local time.

    P(online) = mean + swing · cos(2π (local hour − peak)/24), cut to [0, 1]

in blocks of time, with a time zone per client.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gifair_ray.availability import Availability, Calendar, Floats, Ints, per_client
from gifair_ray.availability.blocks import BlockCalendar
from gifair_ray.distributions import Distribution, constant
from gifair_ray.federation import Population

DAY_S = 86_400.0


class Diurnal(Availability):
    """Online by the time of day."""

    kind: Literal["diurnal"] = "diurnal"
    mean: float = Field(0.5, ge=0, le=1, description="share of the day online")
    swing: float = Field(0.4, ge=0, le=1, description="how much more or less at best and at worst")
    peak_hour: float = Field(2.0, ge=0, lt=24, description="local hour at which most are online")
    zone_hours: Distribution = Field(
        constant(0.0), description="hours that a client's clock is ahead of virtual time"
    )
    groups_zone_hours: dict[str, float] = Field({}, description="time zones of groups, by name")
    block_s: float = Field(
        1800.0, gt=0, allow_inf_nan=False, description="how often it is drawn, seconds"
    )

    def build(self, seed: int, population: Population) -> Calendar:
        clients = np.arange(len(population))
        zone = self.zone_hours.draw(seed, "availability/zone", clients)
        of_group = per_client(
            "availability.groups_zone_hours", np.nan, self.groups_zone_hours, population, (-24, 24)
        )
        zone = np.where(np.isnan(of_group), zone, of_group)

        def offline(clients: Ints, block: Ints) -> Floats:
            hour = (block + 0.5) * self.block_s / 3600.0 + zone[clients]
            wave = np.cos(2 * np.pi * (hour - self.peak_hour) / 24.0)
            return np.clip(1.0 - self.mean - self.swing * wave, 0.0, 1.0)

        possible = clients if self.mean + self.swing > 0 else clients[:0]
        return BlockCalendar(seed, self.block_s, offline, possible)
