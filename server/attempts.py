"""Wrong keys are counted by address, so that guessing takes for ever."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from .errors import TooMany

#: So many wrong keys within so many seconds; then nothing from there is looked at until one of them is older.
_MOST, _WITHIN_S = 5, 60.0
_MOST_ADDRESSES = 10_000


class Attempts:
    """Counts for every address; the oldest addresses are forgotten when there are very many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises TooMany when the last few keys from there were wrong; a right one would not be looked at."""
        with self._lock:
            times = self._recent(_group(address))
            if len(times) >= _MOST:
                raise TooMany(max(1, round(times[0] + _WITHIN_S - self._clock() + 0.5)))

    def failed(self, address: str) -> None:
        with self._lock:
            group = _group(address)
            times = self._recent(group)
            times.append(self._clock())
            self._failed[group] = times
            self._failed.move_to_end(group)
            while len(self._failed) > _MOST_ADDRESSES:
                self._failed.popitem(last=False)

    def _recent(self, group: str) -> deque[float]:
        times = self._failed.get(group, deque(maxlen=_MOST))
        while times and times[0] <= self._clock() - _WITHIN_S:
            times.popleft()
        return times


def _group(address: str) -> str:
    """Whoever has one IPv6 address mostly has 2**64 of them."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False).network_address)
    return address
