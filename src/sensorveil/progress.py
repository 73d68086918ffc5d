"""Progress of long work, without any screen in the library.

Long loops say `for epoch in track(range(n), "training")`. Nobody listens by default; the command
line (or a notebook) listens by `with listen(callback):`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Listener = Callable[[str, int, int], None]
"""Called with (what, steps done, steps in all); steps done equals steps in all at the end."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def track(items: Sequence[Item], what: str) -> Iterator[Item]:
    """Yields the items and tells the listener how many are done.

    >>> seen = []
    >>> with listen(lambda what, done, total: seen.append((what, done, total))):
    ...     for _ in track(range(2), "training"):
    ...         pass
    >>> seen
    [('training', 0, 2), ('training', 1, 2), ('training', 2, 2)]
    """
    tell = _listener.get()
    for done, item in enumerate(items):
        if tell:
            tell(what, done, len(items))
        yield item
    if tell:
        tell(what, len(items), len(items))


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Sends the progress of everything inside the block to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
