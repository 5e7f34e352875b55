"""Where source files are: on this machine or in an object store, named one by one, by a glob, or by their folder.

Addresses with a scheme (s3://, gs://, abfs://, …) are opened by Arrow's file systems, or by fsspec where Arrow has
none. Credentials come from the environment, as the store's own tools read them; an address that carries them is
refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pa_fs

from synth_core.errors import SourceError, needing

CSV_ENDINGS = (".csv", ".csv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
ENDINGS = CSV_ENDINGS + PARQUET_ENDINGS

MAX_ADDRESS = 4096
"""Upper limit of the letters of an address: no file has a longer path, and globs are read in quadratic time."""

_WILD = re.compile(r"[*?\[]")


def source_files(source: str | Sequence[str]) -> list[str]:
    """Addresses of the files that a path, a glob, a folder or a list of these names; each part in its own order."""
    parts = [source] if isinstance(source, str) else source
    return [address for part in parts for address in _files_of(part)]


def distinct_files(addresses: Iterable[str]) -> list[str]:
    """Returns the addresses, each file under the first of its names.

    A source is a set of files, so one that several globs, folders, symbolic or hard links name is read once: read
    twice, each of its records would count twice. Copies are other files.

    Args:
        addresses: of single files, on this machine or in a store.

    Returns:
        One address for each file, in the order given. Local files are the same if device and inode are, others
        if their addresses are. One that cannot be looked at is left in, so that reading it is refused.
    """
    named: dict[object, str] = {}
    for address in addresses:
        named.setdefault(_identity(address), address)
    return list(named.values())


def open_file(address: str) -> Any:
    """An Arrow file that can be read anywhere in it."""
    files, path = _file_system(address)
    return files.open_input_file(path)


def _files_of(source: str) -> list[str]:
    if len(source) > MAX_ADDRESS:
        raise SourceError(f"source {source[:40]}… is longer than {MAX_ADDRESS:,} letters; name its folder")
    files, path = _file_system(source)
    try:
        found = _matching(files, path)
    except (OSError, ValueError):
        found = []
    if not found:
        raise SourceError(f"source {source} matches no file; check the path in the release spec")
    prefix = f"{urlsplit(source).scheme}://" if "://" in source else ""
    return [f"{prefix}{name}" for name in sorted(found)]


def _identity(address: str) -> object:
    scheme, separator, path = address.partition("://")
    if separator and scheme != "file":
        return address
    try:
        status = Path(path if separator else address).stat()
    except OSError:
        return address
    return status.st_dev, status.st_ino


def _matching(files: Any, path: str) -> list[str]:
    wild = _WILD.search(path)
    if wild is not None:
        with needing("cluster"):
            from fsspec.utils import glob_translate

        base = path[: wild.start()].rpartition("/")[0] or ("/" if path.startswith("/") else ".")
        if "**" in path:
            pattern = re.compile(glob_translate(path))
            return [name for name in _below(files, base) if pattern.fullmatch(name)]
        # Level by level: a folder that no part of the glob names may hold millions of files.
        found = [base]
        for end in [*(at.start() for at in re.finditer("/", path) if at.start() > wild.start()), len(path)]:
            pattern = re.compile(glob_translate(path[:end]))
            kind = pa_fs.FileType.File if end == len(path) else pa_fs.FileType.Directory
            inside = [item for folder in found for item in _entries(files, folder) if item.type == kind]
            found = [item.path for item in inside if pattern.fullmatch(item.path)]
        return found
    if files.get_file_info(path).type == pa_fs.FileType.Directory:
        return [name for name in _below(files, path) if _is_data(name, below=path)]
    return [path] if files.get_file_info(path).type == pa_fs.FileType.File else []


def _below(files: Any, folder: str) -> list[str]:
    return [item.path for item in _entries(files, folder, deep=True) if item.type == pa_fs.FileType.File]


def _entries(files: Any, folder: str, *, deep: bool = False) -> list[Any]:
    return list(files.get_file_info(pa_fs.FileSelector(folder, recursive=deep)))


def _is_data(name: str, *, below: str) -> bool:
    """Files of a known kind; names that begin with a dot or an underscore are other programs' notes."""
    hidden = any(part.startswith((".", "_")) for part in name.removeprefix(below).split("/"))
    return name.lower().endswith(ENDINGS) and not hidden


def _file_system(address: str) -> tuple[Any, str]:
    if "://" not in address:
        return pa_fs.LocalFileSystem(), Path(address).as_posix()
    if "@" in urlsplit(address).netloc and urlsplit(address).password is not None:
        raise SourceError("the source's address carries credentials; remove them and set them in the environment")
    try:
        files, path = pa_fs.FileSystem.from_uri(address)
    except (pa.ArrowException, ValueError, OSError):
        files, path = _by_fsspec(address)
    return files, path


def _by_fsspec(address: str) -> tuple[Any, str]:
    with needing("cluster"):
        import fsspec

    try:
        files, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError, OSError):
        scheme = urlsplit(address).scheme
        raise SourceError(
            f"source {address}: nothing here opens {scheme}:// addresses; install its fsspec driver"
        ) from None
    return pa_fs.PyFileSystem(pa_fs.FSSpecHandler(files)), path
