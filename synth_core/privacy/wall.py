"""The wall around code that sees exact values: no error and no log line leaves it with its own words.

It guards against accidents: a library that quotes a cell in an exception, or logs one. Output of a debugger, of a
`print`, or of code written to leak is not stopped here; the linters and the review are there for that.

Exact counts and rows travel in `Private`: it can be carried, but not looked at by accident.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, Generic, NoReturn, TypeVar

from synth_core.errors import StorageError, SynthError, WallError
from synth_core.files import NO_ROOM, explain

WITHHELD = "a message from inside the confidential zone was withheld"
"""Text in place of a library's log message."""
OWN_LOGGERS = "synth_core"
"""Our own log lines are worded for the public, so they pass."""

_inside: ContextVar[bool] = ContextVar("inside the wall", default=False)
_installing = Lock()


@contextmanager
def wall() -> Iterator[None]:
    """Run a block that handles exact values.

    Refusals (SynthError) have been worded for the public and pass; any other error is replaced, without its cause,
    and log records of libraries lose their text, arguments and tracebacks. That a disk is full is said, since somebody
    has to make room; which file did not fit is not.
    """
    _withhold_records()
    token = _inside.set(True)
    try:
        yield
    except SynthError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise StorageError(f"the confidential zone: {explain(error)}") from None
        kind = type(error).__name__
        raise WallError(f"a step failed inside the confidential zone ({kind}); details are withheld") from None
    finally:
        _inside.reset(token)


def _withhold_records() -> None:
    """Make every log record pass by the wall, once in a process, whatever record factory was set before."""
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


T = TypeVar("T")


class Private(Generic[T]):
    """Holds a confidential value; has no arithmetic, no comparison, no text and no pickle.

    It guards against accidents (a log line, an XCom, a sum with a public number), not against malice: Python
    cannot stop code that is written to break in. `open_private` is the only door, and a test lists the modules
    that may use it.
    """

    __slots__ = ("__value",)

    def __init__(self, value: T) -> None:
        self.__value = value

    def __repr__(self) -> str:
        return "Private(…)"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __refuse(self, *_: object, **__: object) -> NoReturn:
        raise WallError("a confidential value cannot be compared, counted, copied, stored or sent; ask the curator")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __refuse
    __hash__ = __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = __refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = __array__ = __refuse


def open_private(private: Private[T]) -> T:
    """The exact value; only the curator, the audit and the confidential-zone storage may call this."""
    value: Any = private._Private__value  # type: ignore[attr-defined] # noqa: SLF001
    return value  # type: ignore[no-any-return]
