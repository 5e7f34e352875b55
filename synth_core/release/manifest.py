"""The manifest: what was released, by which software, at which privacy loss, and the checksum of every file."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from synth_core.documents import parse_json
from synth_core.files import read_file, sha256_file
from synth_core.privacy.budget import epsilon_of, mu2_of, round_up
from synth_core.release.paths import MANIFEST, PUBLIC_KEY, SIGNATURE
from synth_core.release.signing import is_signed_by
from synth_core.release.spec import ReleaseSpec
from synth_core.schema import Schema
from synth_core.schema.linked import LinkedSchema

FORMAT = 3
"""Version of the manifest's layout."""

DECLARED, BOUGHT = "declared in the public schema", "private quantiles, bought"
"""Where a column's codes come from."""

DIGITS = 6
"""Digits after the decimal point with which losses are stored, rounded up."""

LOCK = "requirements.lock"
"""The file from which an image or a checkout was installed."""


NOT_MADE = (
    "explore.html, answers of `synth ask` and replicates of the model are about one table, and are not made of two "
    "linked ones"
)
"""What a release of linked tables says of files that it has not."""


@dataclass(frozen=True, slots=True)
class LinkedFacts:
    """What a manifest says of two linked tables: their declaration, and how many rows each has."""

    schema: LinkedSchema
    households: int
    people: int

    def plain(self, guarantee: dict[str, Any]) -> dict[str, Any]:
        """The same as plain data, with what the guarantee means for one person."""
        return {
            "link": self.schema.link,
            "largest": self.schema.largest,
            "household": self.households,
            "person": self.people,
            "one_person": person_statement(guarantee),
            "left_out": NOT_MADE,
        }


def person_statement(guarantee: dict[str, Any]) -> dict[str, Any]:
    """What a guarantee about one household means for one person.

    To add, remove or change a person replaces one household by another: one is removed and one added, each a neighbour
    of what is between, so twice mu.

    Args:
        guarantee: The guarantee about a household.

    Returns:
        The privacy loss of a person at the same delta, rounded up, with the sentence that says whose it is.
    """
    epsilon = epsilon_of(4 * mu2_of(guarantee["epsilon"], guarantee["delta"]), guarantee["delta"])
    return {
        "epsilon": round_up(epsilon, DIGITS),
        "delta": guarantee["delta"],
        "says": "Somebody who is added, removed or answers differently replaces one household by another: twice mu. "
        "Somebody who moves from one household of the data to another changes both: four times mu.",
    }


def build(
    *,
    spec: ReleaseSpec,
    guarantee: dict[str, Any],
    schema: Schema,
    cliques: Sequence[Sequence[str]],
    quality: dict[str, Any],
    previous: dict[str, Any] | None,
    reused: Sequence[dict[str, Any]] = (),
    prior: dict[str, Any] | None = None,
    linked: LinkedFacts | None = None,
) -> dict[str, Any]:
    """The manifest of a release, still without its artifacts.

    No digest of the source is part of it: one that is the same for equal data would show anybody whether two releases
    were made from the same confidential rows. The ledger keeps it, under a key.

    Args:
        spec: The release as it was asked for.
        guarantee: What `release.certificate.guarantee` gives at the publication record.
        schema: The public schema, with the bins that were bought; of linked tables the columns of one person and
            the household.
        cliques: Columns that the model joins.
        quality: The public quality in short.
        previous: The manifest of the release before, if there was one.
        reused: What `release.reuse.say_reuse` says of the earlier answers that it was built on.
        prior: What `release.prior.say_prior` says of the public table that it was built on.
        linked: What there is to say of two linked tables.

    Returns:
        The manifest as plain data.
    """
    return {
        "format": FORMAT,
        "release": spec.release,
        "dataset": spec.dataset,
        "schema_digest": linked.schema.digest() if linked else schema.digest(),
        **({"tables": linked.plain(guarantee)} if linked else {}),
        "guarantee": guarantee,
        "domain": {
            column.name: {
                "kind": column.kind,
                "codes": column.size,
                "origin": BOUGHT if column.name in schema.private_bin_columns else DECLARED,
                "unseen": column.unseen,
                "nullable": column.nullable,
            }
            for column in schema.columns
        },
        "method": {
            "name": spec.method,
            "preset": spec.preset,
            "options": spec.options,
            **({"protected": [list(table) for table in spec.protect]} if spec.protect else {}),
        },
        **({"reused": list(reused)} if reused else {}),
        **({"public_information": prior} if prior else {}),
        "strata": spec.strata.model_dump(mode="json") if spec.strata else None,
        "rows": spec.rows,
        "seed": spec.seed,
        "cliques": [list(clique) for clique in cliques],
        "quality": quality,
        "previous": None if previous is None else {key: previous[key] for key in ("release", "digest")},
    }


def complete(
    manifest: dict[str, Any], *, public: Path, artifacts: Sequence[Path], provenance: dict[str, Any]
) -> dict[str, Any]:
    """The manifest with checksums; `digest` covers all but the provenance, which differs from run to run."""
    sums = {str(path.relative_to(public)): sha256_file(path) for path in sorted(artifacts)}
    content = {**manifest, "artifacts": sums}
    return {**content, "digest": digest_of(content), "provenance": provenance}


def digest_of(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of a manifest's content."""
    content = {key: value for key, value in content.items() if key not in ("digest", "provenance")}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def previous_manifest(public_zone: Path, *, dataset: str, release: str) -> dict[str, Any] | None:
    """The manifest with which a release is compared: the newest published one of another release of the data set.

    A release that was published before keeps the one it was compared with then, whatever has come since. A manifest
    that is not as it was signed is the business of `synth verify`, and no yardstick.
    """
    manifests = {}
    for path in sorted(public_zone.glob(f"*/{MANIFEST}")):
        try:
            content = read_file(path)
            signed, pem = (read_file(path.with_name(name)).decode() for name in (SIGNATURE, PUBLIC_KEY))
            if not is_signed_by(content, signed, pem):
                continue
            found = parse_json(content)
            if found["dataset"] == dataset and found["release"] == path.parent.name:
                manifests[found["release"]] = (str(found["provenance"]["published_at"]), found)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    if release in manifests:
        before = manifests[release][1].get("previous")
        return manifests[before["release"]][1] if before and before["release"] in manifests else None
    return max(manifests.values(), key=lambda item: item[0])[1] if manifests else None


def problems(manifest: dict[str, Any], public: Path) -> list[str]:
    """Every way in which the manifest disagrees with itself or with the published files."""
    found = []
    if manifest.get("digest") != digest_of(manifest):
        found.append("manifest.json: its content does not match its digest")
    for name, digest in manifest.get("artifacts", {}).items():
        path = public / name
        if not path.is_file():
            found.append(f"{name}: is missing")
        elif sha256_file(path) != digest:
            found.append(f"{name}: does not match its checksum")
    return found


def software() -> dict[str, str | None]:
    """Our version, Python's, a digest of all that is installed, and one of the lock it was installed from, if known."""
    lock = lock_file()
    return {
        "software": f"synth-core {version('synth-core')}",
        "python": platform.python_version(),
        "packages_digest": _packages_digest(),
        "lock_digest": None if lock is None else sha256_file(lock),
    }


@cache
def _packages_digest() -> str:
    """Computed once for a process: it reads the metadata of hundreds of packages."""
    installed = sorted(f"{found.name}=={found.version}" for found in distributions())
    return hashlib.sha256("\n".join(installed).encode()).hexdigest()


def lock_file() -> Path | None:
    """The lock in the root of this environment, where an image keeps it, or else the one of this checkout."""
    places = Path(sys.prefix) / LOCK, Path(__file__).resolve().parents[2] / LOCK
    return next((place for place in places if place.is_file()), None)
