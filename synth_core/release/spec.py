"""The release spec: the one YAML file a person writes to ask for a release."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from synth_core.errors import SpecError
from synth_core.release.schedule import Schedule
from synth_core.release.strata import Strata

NAME = re.compile(r"^[a-z0-9][a-z0-9._-]{0,99}$")
"""Names become folder names and ledger keys, so they are short, lower-case and free of separators."""

ROUTINE = ("schedule", "pool", "deadline_hours")
"""Keys about when and where releases are run: they may change without making it another release."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the compiled one is eight times as fast


class ReleaseSpec(BaseModel):
    """What to release, from which source, by which method, at which price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    release: str = Field(
        description="name of this release; running the same name again resumes it at no further cost"
    )
    dataset: str = Field(description="ledger account that pays; declared once with `synth ledger account`")
    source: str | tuple[str, ...] = Field(
        description="CSV or Parquet file, glob, folder or s3:// address, or a list of these; relative to the spec file"
    )
    schema_: str = Field(alias="schema", description="schema file, relative to the spec file")
    method: str = Field(default="privmrf", description="see `synth methods`")
    preset: str = Field(default="default", description="see `synth methods`")
    options: dict[str, Any] = Field(default_factory=dict, description="overrides of the preset's constants")
    epsilon: Annotated[float, Field(gt=0, le=100)] = Field(description="privacy loss of this release")
    delta: Annotated[float, Field(gt=0, lt=1)] = Field(description="must be the account's delta")
    strata: Strata | None = Field(
        default=None, description="a column, for one model each of its values; see docs/strata.md"
    )
    rows: Literal["noisy"] | Annotated[int, Field(ge=1, le=10_000_000_000)] = Field(
        default="noisy", description="`noisy` (the noisy number of records) or a public number"
    )
    shards: Annotated[int, Field(ge=1, le=10_000)] = Field(default=4, description="number of output files")
    csv: bool = Field(default=False, description="whether the shards are written as CSV files too")
    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        default=0, description="seed of the row sampler, which is post-processing; privacy noise has no seed"
    )
    quality_share: Annotated[float, Field(ge=0, le=0.5)] = Field(
        default=0.0,
        description="share of the budget that buys noisy true errors for the public report; 0 buys none",
    )
    bins_share: Annotated[float, Field(ge=0, le=0.25)] = Field(
        default=0.0,
        description="share of the budget that buys the bins of columns with `private_quantiles`, all of them together",
    )
    unit: str = Field(default="person", description="unit of privacy: one record belongs to one such unit")
    approval: bool = Field(
        default=False, description="whether a person must approve the release before it is published"
    )
    schedule: Schedule | None = Field(
        default=None, description="when Airflow makes a release: cron, a calendar in words, or an asset"
    )
    pool: str | None = Field(
        default=None, description="Airflow pool of the release's tasks; made with one slot if there is none"
    )
    deadline_hours: Annotated[float, Field(gt=0, le=8760)] | None = Field(
        default=None, description="people are told when a run takes longer"
    )

    @field_validator("release", "dataset")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not NAME.match(value):
            raise ValueError("use 1 to 100 of a-z, 0-9, '.', '_', '-', starting with a letter or digit")
        return value

    @classmethod
    def parse(cls, values: dict[str, Any], *, where: str = "release spec") -> ReleaseSpec:
        """Validate a mapping; every problem is named in one line."""
        if not isinstance(values, dict):
            raise SpecError(f"{where}: expected keys and values; see `synth init` for an example")
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SpecError(f"{where}: {_in_words(error)}") from None

    @classmethod
    def load(cls, path: Path) -> ReleaseSpec:
        """Read a spec file; source and schema become paths relative to the caller's directory."""
        try:
            values = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 — a safe loader
        except OSError:
            raise SpecError(f"{path}: cannot be read; `synth init DIR` writes an example") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise SpecError(f"{path}: is not valid YAML") from None
        spec = cls.parse(values, where=str(path))
        return spec.model_copy(
            update={
                "source": _beside(path, spec.source)
                if isinstance(spec.source, str)
                else tuple(_beside(path, part) for part in spec.source),
                "schema_": _beside(path, spec.schema_),
            }
        )

    def dump(self) -> dict[str, Any]:
        """The spec as plain values, with the keys of the YAML file."""
        return self.model_dump(by_alias=True)

    def save(self, path: Path) -> None:
        """Write the spec as YAML."""
        path.write_text(yaml.safe_dump(self.dump(), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _beside(spec: Path, address: str) -> str:
    return address if "://" in address else str((spec.parent / address).resolve())


def _in_words(error: ValidationError) -> str:
    words = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        key = ".".join(
            str(part) for part in problem["loc"] if part not in ("constrained-int", "literal['noisy']")
        )
        if problem["type"] == "extra_forbidden":
            owner: type[BaseModel] = Strata if problem["loc"][0] == "strata" else ReleaseSpec
            known = ", ".join(field.alias or name for name, field in owner.model_fields.items())
            words.append(f"unknown key {key!r} (known keys: {known})")
        elif problem["type"] == "missing":
            words.append(f"key {key!r} is missing")
        else:
            words.append(f"{key}: {problem['msg'].removeprefix('Value error, ')}")
    return "; ".join(dict.fromkeys(words))
