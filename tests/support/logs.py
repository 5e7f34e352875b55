"""Everything that a process logs, whatever the level, as text."""

import logging
from contextlib import contextmanager


@contextmanager
def all_logged():
    """Give the list to which each line is added while this lasts, with the exception that it may carry."""
    said, handler = [], logging.Handler(logging.NOTSET)
    handler.emit = lambda record: said.append(record.getMessage() + str(record.exc_info or ""))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield said
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
