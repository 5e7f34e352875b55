"""Public tables that a release builds on: which they are, who says that they are public, and what is said of them.

Nothing compares a public table with the confidential rows: whether two files are equal is a fact about the rows that no
noise covers. What is compared are addresses. A prior that lies in the zone of confidential files, or that some release
of the workspace names as its source, is refused (`public_rows.require_public`).

What is read is frozen when the release begins, by the digest of each file, so that whoever runs it again builds on the
same table.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from synth_core.documents import read_json
from synth_core.errors import SpecError
from synth_core.files import write_text
from synth_core.names import one_line


class Prior(BaseModel):
    """A public table that a release builds on, as a spec names it.

    The short form is one line of text: `FILE because REASON`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Annotated[str, Field(min_length=1), AfterValidator(one_line)] = Field(
        title="Source",
        description="CSV or Parquet as for the release's own source, or the folder of a published release, whose "
        "synthetic table is taken. Relative to the spec file",
    )
    public_because: Annotated[str, Field(min_length=10), AfterValidator(one_line)] = Field(
        title="Public because",
        description="who says that the table is public, and why; goes into the certificate as it stands",
    )
    strength: Literal["auto"] = Field(
        "auto", title="Strength", description="how far it is trusted; `auto`, the only choice, lets noisy answers say"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        source, because, reason = value.partition(" because ")
        if not because:
            raise ValueError("write it as `FILE because REASON`, or with the keys source and public_because")
        return {"source": source.strip(), "public_because": reason.strip()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicFile:
    """A file by its name and the digest of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenPrior:
    """What a release builds on, as it was when the release began."""

    files: tuple[PublicFile, ...]
    rows: int
    columns: tuple[str, ...]
    public_because: str

    def save(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_text(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            SpecError: The file is missing or says nothing of a prior.
        """
        try:
            return TypeAdapter(cls).validate_python(read_json(path))
        except (OSError, ValueError):
            raise SpecError(f"{path}: what was noted of the prior cannot be read; prepare the release again") from None


def say_prior(frozen: FrozenPrior | None, *, used: bool) -> dict[str, Any] | None:
    """What a manifest says of a prior; None without any."""
    return None if frozen is None else {**asdict(frozen), "used": used}
