"""Limits: every number of limits.yaml for one profile. Units are in the names (bytes, ms, s)."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from kube32.contract.data import load

_DATA = cast(dict[str, Any], load("limits.yaml"))
PROFILES: tuple[str, ...] = tuple(_DATA["profiles"])


class Limits(Mapping[str, int]):
    """One profile's limits: `limits.watch_streams` or `limits["watch_streams"]`. `replace` gives a changed copy."""

    __slots__ = ("_values", "profile")

    def __init__(self, profile: str, values: dict[str, int]) -> None:
        self.profile = profile
        self._values = values

    def __getattr__(self, name: str) -> int:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"limits.yaml has no limit {name!r}") from None

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def replace(self, **changes: int) -> "Limits":
        """A copy with some numbers changed; KeyError for a name that limits.yaml lacks."""
        for name in changes:
            self._values[name]
        return Limits(self.profile, {**self._values, **changes})


def limits_for(profile: str) -> Limits:
    """The limits of a profile; ValueError names the known ones."""
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; the profiles are {', '.join(PROFILES)}")
    rows: dict[str, Any] = _DATA["limits"]
    return Limits(
        profile,
        {n: r["value"][profile] if isinstance(r["value"], dict) else r["value"] for n, r in rows.items()},
    )


LIMITS: Limits = limits_for("sim")
