"""The wall around code that sees exact values: no error and no log line leaves it with its own words.

It guards against accidents: a library that quotes a cell in an exception, or logs one. Output of a debugger, of a
`print`, or of code written to leak is not stopped here; the linters and the review are there for that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

from synth_core.errors import SynthError, WallError

WITHHELD = "a message from inside the confidential zone was withheld"
OWN_LOGGERS = "synth_core"
"""Our own log lines are worded for the public, so they pass."""

_inside: ContextVar[bool] = ContextVar("inside the wall", default=False)
_installing = Lock()


@contextmanager
def wall() -> Iterator[None]:
    """Run a block that handles exact values.

    Refusals (SynthError) have been worded for the public and pass; any other error is replaced, without its cause,
    and log records of libraries lose their text, arguments and tracebacks.
    """
    _withhold_records()
    token = _inside.set(True)
    try:
        yield
    except SynthError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise WallError(
            f"a step failed inside the confidential zone ({kind}); details are withheld"
        ) from None
    finally:
        _inside.reset(token)


def _withhold_records() -> None:
    """Make every log record pass by the wall, once in a process, whoever has set the record factory before."""
    with _installing:
        make = logging.getLogRecordFactory()
        if getattr(make, "guards_the_wall", False):
            return

        def guarded(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make(*args, **kwargs)
            own = str(record.name).split(".")[0] == OWN_LOGGERS  # structlog makes nameless records
            if _inside.get() and not own:
                record.msg, record.args, record.exc_info, record.exc_text = WITHHELD, (), None, None
                record.stack_info = None
            return record

        guarded.guards_the_wall = True  # type: ignore[attr-defined]
        logging.setLogRecordFactory(guarded)
