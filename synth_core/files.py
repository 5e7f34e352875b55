"""Files that are either whole or absent, their checksums, and what is said when one cannot be read or written."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from synth_core.errors import StorageError

O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
"""Flag that makes a file without a name; 0 where the system has none, and a folder is refused as one."""

NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
"""Numbers of the errors of a file system without files that have no name."""


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Give a temporary path to write; it takes the real name when the block ends, and vanishes if it fails.

    The temporary file lies beside the real one (a rename is atomic only within a file system) and keeps its
    suffix, because some writers choose or append a format by it. File and directory are flushed to the disk,
    so after a power failure the name holds the old content or the new, never a part.
    """
    target = Path(path)
    temporary = temporary_beside(target)
    try:
        yield temporary
        flush_to_disk(temporary)
        temporary.replace(target)
        flush_to_disk(target.parent)
    except OSError as error:
        if error.errno in NO_ROOM and error.filename is None:  # what writes archives and Parquet does not say where
            error.filename = str(target)
        raise
    finally:
        temporary.unlink(missing_ok=True)


MAX_PUBLISHED = 64 * 2**20
"""Upper limit of the bytes of a manifest, certificate or key: what people exchange is far smaller."""


def read_file(path: str | Path, *, limit: int = MAX_PUBLISHED) -> bytes:
    """Returns the bytes of a file that somebody else may have written.

    Args:
        path: A regular file; a device or a pipe, which might never end, is refused without being opened.
        limit: Upper limit of its size in bytes.

    Raises:
        OSError: It cannot be read, is no regular file, or is larger.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - and not opened: that alone starts some devices
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), str(path))
    # Without waiting: a pipe that takes its place would be opened for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), str(path))
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def write_text(path: str | Path, text: str) -> None:
    """Write a text file that is whole or absent, in UTF-8."""
    with atomic_write(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_in_turn(path: Path, content: Callable[[], bytes | None]) -> None:
    """Replace a small file that many processes write, one after the other, by one draft that all of them use.

    A writer that was killed leaves at most that draft, which the next one takes over. Nothing is forced to the disk.

    Args:
        path: The file.
        content: Asked when it is this writer's turn; None leaves the file as it is.

    Raises:
        OSError: It cannot be written.
    """
    draft = path.with_name(f".{path.name}")
    while True:
        with draft.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_file_of(draft, file.fileno()):
                continue  # the writer before has given it its name: a new draft is made
            written = content()
            if written is None:
                draft.unlink()
                return
            file.truncate(0)
            file.write(written)
            file.flush()
            draft.replace(path)
            return


def _is_file_of(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def write_once(path: Path, content: bytes) -> bytes:
    """Keep a secret under a name that has none yet, for its owner alone.

    The name is given by a link: a process that dies, or a disk that is full, leaves a whole file or none, and the first
    of several writers wins.

    Args:
        path: The file.
        content: What it holds if it is new.

    Returns:
        What the file holds now.

    Raises:
        OSError: It cannot be written or read.
    """
    try:
        handle = os.open(path.parent, os.O_WRONLY | O_TMPFILE, 0o600)
    except OSError as error:
        if error.errno not in NO_TMPFILE:
            raise
        _link_named(path, content)
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            _link_unnamed(file.fileno(), path)
    flush_to_disk(path.parent)
    return path.read_bytes()


def _link_unnamed(handle: int, path: Path) -> None:
    """Name a file that has no name, of which nothing is left if its process is killed."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(FileExistsError):
            os.link(f"/proc/self/fd/{handle}", path.name, dst_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


def _link_named(path: Path, content: bytes) -> None:
    """The same where the file system has no files without a name; a killed process leaves one beside the path."""
    temporary = temporary_beside(path)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        flush_to_disk(temporary)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def close_to_others(path: Path) -> None:
    """Take away the right of everybody to write to a file or folder, which a umask of 0 gives."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IWOTH:
        path.chmod(mode & ~stat.S_IWOTH)


@contextmanager
def sharing_work(lock: Path, *folders: Path) -> Iterator[None]:
    """Work in some folders beside others who do; one who finds no other at work first removes what killed ones left.

    Args:
        lock: A file that all who work there name.
        folders: Where everything whose name begins with a dot is temporary.
    """
    with lock.open("a") as file:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for folder in folders:
                _remove_temporary(folder)
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _remove_temporary(folder: Path) -> None:
    for place, inside, names in os.walk(folder):
        for name in [name for name in inside if name.startswith(".")]:
            inside.remove(name)
            shutil.rmtree(Path(place, name), ignore_errors=True)
        for name in names:
            if name.startswith("."):
                Path(place, name).unlink(missing_ok=True)


def temporary_beside(path: Path) -> Path:
    """Returns a new name beside the path, with its suffix; it begins with a dot, as that of no finished file does."""
    return path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")


def flush_to_disk(path: Path) -> None:
    """Make a file's content, or a directory's entries, survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""First letters of a text that a spreadsheet would run as a formula."""


def escape_formula(text: str) -> str:
    """Returns the text with an apostrophe before it, if a spreadsheet would run it as a formula."""
    return f"'{text}" if text.startswith(FORMULA_SIGNS) else text


NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of the errors that say that a disk is full."""

_REASONS = {
    errno.ENOSPC: "the disk is full; make room and run again",
    errno.EDQUOT: "the quota of the disk is used up; make room and run again",
    errno.EROFS: "the file system is read-only; name another folder",
    errno.EACCES: "permission is denied; ask for it, or name a file or folder that you may use",
    errno.EPERM: "permission is denied; ask for it, or name a file or folder that you may use",
    errno.ENOENT: "it is not there, or its folder is not; check the path",
    errno.ENOTDIR: "a part of the path is not a folder; check it",
    errno.EISDIR: "it is a folder; name a file",
    errno.EEXIST: "something of that name is there already; name another",
    errno.ELOOP: "its symbolic links go round in a circle; mend them",
    errno.ENAMETOOLONG: "its name is too long; use a shorter one",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENODEV: "it is a device or a pipe; name a file",
    errno.EFBIG: "it is larger than such a file can be; name another",
    errno.EIO: "the disk reports an error; check it",
}


def explain(error: OSError) -> str:
    """Returns why a file cannot be used, with the remedy where there is one."""
    return _REASONS.get(error.errno or 0) or error.strerror or type(error).__name__


@contextmanager
def naming_files() -> Iterator[None]:
    """Turn a failure of the file system into one line that names the file and the remedy.

    Raises:
        StorageError: The block raised an OSError of the operating system.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not of the file system: a library's own
            raise
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        raise StorageError(f"{' to '.join(names) or 'a file'}: {explain(error)}") from None


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
