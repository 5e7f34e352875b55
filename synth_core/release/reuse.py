"""Answers of earlier releases that a release builds on: which they are, what they are worth, and what is said of them.

A spec names the releases whose rows were the same, in the judgement of people. Nothing looks at the rows to find that
out, because a release that is published only if two confidential files are equal would say so, without any noise. The
list of answers is frozen when the release begins (`freeze`), so that a repeated run reads the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias

from pydantic import AfterValidator, TypeAdapter

from synth_core.documents import read_json
from synth_core.domain import Domain
from synth_core.errors import SchemaError, SpecError
from synth_core.files import write_text
from synth_core.ledger.answers import StoredTable, fitting_tables, read_tables
from synth_core.measurement import EarlierRelease, EarlierTable, Measurement
from synth_core.names import suggest
from synth_core.privacy.accounts import Ledger, Record, State
from synth_core.release.certificate import last_turn
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import DeclaredSchema, Schema

Identity: TypeAlias = tuple[str, str, str, str]
"""Release, step, purpose and digest of an answer."""

MAX_MU2 = 10**9
"""Upper limit of what an answer may have cost: no account has as much."""

ASKING = ("score", "select", "fit")
"""Steps whose answers say something about the rows as they were modelled."""


def _check_fraction(text: str) -> str:
    try:
        if not 0 <= Fraction(text) <= MAX_MU2:
            raise ValueError("it is no price")
    except ZeroDivisionError:
        raise ValueError("it is no fraction") from None
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reused:
    """One answer: what was asked in which step, by which mechanism at which price, and the digest of the noisy numbers.

    `tables` is how many tables of counts over the release's codes it holds.
    """

    release: str
    step: str
    purpose: str
    mechanism: dict[str, Any]
    mu2: Annotated[str, AfterValidator(_check_fraction)]
    tables: int
    digest: str

    @property
    def identity(self) -> Identity:
        """What distinguishes it from all other answers of its account."""
        return self.release, self.step, self.purpose, self.digest


@dataclass(frozen=True, slots=True)
class FrozenReuse:
    """The answers that a release builds on, as they were when it began; without any, it builds on none."""

    answers: tuple[Reused, ...] = ()

    def save(self, path: Path) -> None:
        """Write the list as JSON, whole or not at all."""
        write_text(path, json.dumps([asdict(answer) for answer in self.answers], indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote.

        Raises:
            SpecError: The file is missing or no such list.
        """
        try:
            return cls(TypeAdapter(tuple[Reused, ...]).validate_python(read_json(path)))
        except (OSError, ValueError):
            raise SpecError(f"{path}: the list of reused answers cannot be read; prepare the release again") from None

    @property
    def mu2(self) -> Fraction:
        """What was paid for the answers when they were measured."""
        return sum((Fraction(answer.mu2) for answer in self.answers), Fraction(0))

    def by_release(self) -> dict[str, list[Reused]]:
        """The answers of each release."""
        names = dict.fromkeys(answer.release for answer in self.answers)
        return {name: [answer for answer in self.answers if answer.release == name] for name in names}


def freeze(ledger: Ledger, spec: ReleaseSpec, domain: Domain) -> FrozenReuse:
    """List the answers of the releases that a spec names; nothing is spent, and no row is read.

    Args:
        ledger: where they are.
        spec: names the account and the releases.
        domain: the codes of the new release.

    Returns:
        All answers that hold tables of counts over these codes.

    Raises:
        SpecError: A release has measured no such table, is not ended, had strata, or has other columns.
    """
    if not spec.reuse:
        return FrozenReuse()
    found = []
    for name in spec.reuse:
        if name == spec.release:
            raise SpecError(f"reuse: {name!r} is this release itself; name releases that came before it")
        records = ledger.records(dataset=spec.dataset, release=name)
        _require_ended(name, records, spec, ledger)
        own = [_as_reused(record, tables) for record in _asking(records) if (tables := fitting_tables(record, domain))]
        if not own:
            raise SpecError(f"reuse: release {name!r} has measured no table over the columns of this one; leave it out")
        found.extend(own)
    return FrozenReuse(tuple(found))


def read_frozen(ledger: Ledger, dataset: str, frozen: FrozenReuse, domain: Domain) -> list[EarlierRelease]:
    """The noisy tables of frozen answers.

    Args:
        ledger: where they are.
        dataset: the account that paid.
        frozen: the list.
        domain: the codes of the new release; tables over others are passed over.

    Returns:
        For each release its tables, in the order of measuring.

    Raises:
        SpecError: An answer is not in the ledger.
    """
    releases = []
    for name, answers in frozen.by_release().items():
        known = {_identity(record): record for record in _asking(ledger.records(dataset=dataset, release=name))}
        tables: list[EarlierTable] = []
        for answer in answers:
            if answer.identity not in known:
                raise SpecError(f"reuse: an answer of release {name!r} is not in the ledger; run: synth ledger verify")
            stored, _ = read_tables(ledger, known[answer.identity])
            tables.extend(_earlier(table) for table in stored if table.fits(domain))
        releases.append(EarlierRelease(name, tuple(tables)))
    return releases


def require_same_codes(schema: Schema, before: Mapping[str, DeclaredSchema]) -> None:
    """Refuse releases in which a code of some column stands for something else.

    Args:
        schema: the new release's.
        before: those of the releases whose answers it builds on.

    Raises:
        SpecError: A column is other than before; names it and the release.
    """
    for release, declared in before.items():
        try:
            known = declared.resolve()
        except SchemaError:
            raise SpecError(f"reuse: release {release!r} has not bought its bins yet; run it to its end") from None
        if known.domain.attributes != schema.domain.attributes:
            raise SpecError(f"reuse: release {release!r} has other columns, or another order of them; leave it out")
        for one, other in zip(schema.columns, known.columns, strict=True):
            if not one.codes_alike(other):
                raise SpecError(
                    f"reuse: column {one.name!r} has other codes than in release {release!r}; declare it as there "
                    "(bought bins as the list of their edges), or leave the release out"
                )


def say_reuse(frozen: FrozenReuse, set_aside: Iterable[str]) -> list[dict[str, Any]]:
    """What a manifest says of the answers that a release was built on, by release."""
    left_out = set(set_aside)
    return [
        {
            "release": name,
            "answers": len(answers),
            "tables": sum(answer.tables for answer in answers),
            "mu2": str(sum((Fraction(answer.mu2) for answer in answers), Fraction(0))),
            "used": name not in left_out,
        }
        for name, answers in frozen.by_release().items()
    ]


def reuse_problems(frozen: FrozenReuse, manifest: Mapping[str, Any], records: Sequence[Record]) -> list[str]:
    """Every answer that a release says it was built on and that the ledger does not have.

    Args:
        frozen: the list that was published.
        manifest: the release's.
        records: all records of the ledger.
    """
    known = {_identity(record) for record in _asking(records) if record.dataset == manifest["dataset"]}
    return [
        f"ledger: has no answer {answer.purpose!r} of release {answer.release!r}, which reuse.json lists"
        for answer in frozen.answers
        if answer.identity not in known
    ]


def _require_ended(name: str, records: Sequence[Record], spec: ReleaseSpec, ledger: Ledger) -> None:
    if not any(record.state is State.MEASURED for record in records):
        measured = {r.release for r in ledger.records(dataset=spec.dataset) if r.state is State.MEASURED}
        raise SpecError(
            f"reuse: release {name!r} has measured nothing from dataset {spec.dataset!r}"
            f"{suggest(name, measured - {spec.release})}; leave it out"
        )
    turn = last_turn(records)
    if turn is not None and turn.state is State.HELD:
        raise SpecError(f"reuse: release {name!r} is still under way; publish or cancel it first, or leave it out")
    if any(record.stratum for record in records):
        raise SpecError(f"reuse: release {name!r} was made in strata, its answers are about parts; leave it out")


def _asking(records: Iterable[Record]) -> list[Record]:
    """The records of answers about the rows as they were modelled."""
    return [
        record
        for record in records
        if record.state is State.MEASURED and record.step in ASKING and record.form is not None
    ]


def _as_reused(record: Record, tables: int) -> Reused:
    return Reused(
        release=record.release,
        step=record.step,
        purpose=record.purpose,
        mechanism=record.mechanism.to_json(),
        mu2=str(record.mu2),
        tables=tables,
        digest=record.answer_digest,
    )


def _identity(record: Record) -> Identity:
    return record.release, record.step, record.purpose, record.answer_digest


def _earlier(table: StoredTable) -> EarlierTable:
    return EarlierTable(Measurement(table.clique, table.noisy, math.sqrt(table.variance)), table.codes_merged)
