"""Slurm's time limits: the text as it is written, and what it comes to in seconds."""

from __future__ import annotations

import re

#: A limit that never comes.
UNLIMITED = float("inf")

FORMS = "minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED"

# sbatch 22.05 also takes "1-", "-5" (as 2,982,611 days) and "-1" (as UNLIMITED): slips, refused here.
# It takes 90:00 and 1-48 as they stand: a part may exceed its usual range.
_FORM = re.compile(r"(?:([0-9]{1,7})-([0-9]{1,7})(?::([0-9]{1,7}))?(?::([0-9]{1,7}))?"
                   r"|([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?)\Z", re.ASCII)
#: Slurm counts minutes in 32 bits, the highest two of which mean something else.
_MAX_MINUTES = 2**32 - 3


def seconds(text: str) -> float | None:
    """What ``text`` means to sbatch --time, in seconds; UNLIMITED also for 0; None when it is no time."""
    if text.upper() in ("UNLIMITED", "INFINITE"):
        return UNLIMITED
    found = _FORM.match(text)
    if not found:
        return None
    days, hours, minutes, secs, first, second, third = (int(g) if g else 0 for g in found.groups())
    if found.group(1) is None:
        if found.group(7) is not None:
            hours, minutes, secs = first, second, third
        else:
            minutes, secs = first, second
    total = ((days * 24 + hours) * 60 + minutes) * 60 + secs
    if total > _MAX_MINUTES * 60:
        return None
    return float(total) if total else UNLIMITED
