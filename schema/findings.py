"""What validation says, as values: a level, a place and a sentence."""

from collections import namedtuple

ERROR = "error"
WARNING = "warning"
NOTE = "note"

#: Nobody reads more errors of one file, and a file of nonsense could give a quarter of a million.
MAX_ERRORS = 1000

_Finding = namedtuple("_Finding", "level path line column message hint", defaults=("",))


class Finding(_Finding):
    """One thing to say about a file.

    ``level`` is ``error``, ``warning`` or ``note``; ``path`` is the key's path in the document
    (``model_training.backends.cluster.time``; empty for the file as a whole); ``line`` and
    ``column`` count from 1; ``message`` is a sentence, ``hint`` says what to do, or is empty.

    A named tuple, since making a dataclass costs `potato validate` a quarter of its time.
    """

    __slots__ = ()

    level: str
    path: str
    line: int
    column: int
    message: str
    hint: str
