"""The wrapper in which exact counts and rows travel: it can be carried, but not looked at by accident."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from synth_core.errors import WallError

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
        raise WallError(
            "a confidential value cannot be compared, counted, copied, stored or sent; ask the curator"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __refuse
    __hash__ = __bool__ = __len__ = __iter__ = __int__ = __float__ = __index__ = __refuse
    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = __array__ = __refuse


def open_private(private: Private[T]) -> T:
    """The exact value; only the curator, the audit and the confidential-zone storage may call this."""
    value: Any = private._Private__value  # type: ignore[attr-defined] # noqa: SLF001
    return value  # type: ignore[no-any-return]
