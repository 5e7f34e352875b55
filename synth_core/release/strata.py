"""The spec's `strata`: by which column a release is divided, and which strata share a model."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(gt=0, le=0.5)]


class Strata(BaseModel):
    """One model for each value of a column, or for a few values together.

    The short form is one line of text: `region`, or `district within state`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str = Field(min_length=1, description="categorical column whose codes are the strata")
    share: Share = Field(default=0.05, description="part of the price for the noisy rows of each stratum")
    pools: dict[str, tuple[int | str, ...]] = Field(
        default_factory=dict, description="named sets of strata that share one model"
    )
    pool_below: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="strata whose noisy number of rows is smaller share one model"
    )
    within: str | None = Field(
        default=None, min_length=1, description="the level above: a column that `by` decides, or just a name"
    )
    members: dict[str, tuple[int | str, ...]] = Field(
        default_factory=dict,
        description="strata of each value of `within`, unless the schema's hierarchy says",
    )
    upper_share: Share = Field(
        default=0.15, description="part of the price for the tables of the level above, if there is one"
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, dict | Strata):
            return value
        if not isinstance(value, str):
            raise ValueError("name a column, `COLUMN within LEVEL`, or give keys and values")
        words = value.split()
        if len(words) == 3 and words[1] == "within":
            return {"by": words[0], "within": words[2]}
        return {"by": value.strip()}

    @model_validator(mode="after")
    def _members_need_a_level(self) -> Strata:
        if self.members and self.within is None:
            raise ValueError("members are those of a level above; name it with `within`")
        return self
