"""What a check of a release has looked at, what it found, and what it could not look at: data, and the words for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a verification looked at, or would have.

    Attributes:
        name: The thing: signature, files, certificate or ledger.
        says: What agrees with what; of a thing that was not checked, why.
        problems: What disagrees, each beginning with the name of the file or thing.
        checked: Whether it was looked at.
    """

    name: str
    says: str
    problems: tuple[str, ...] = ()
    checked: bool = True

    @property
    def outcome(self) -> str:
        """The result in two words: agrees, DISAGREES or not checked."""
        if self.problems:
            return "DISAGREES"
        return "agrees" if self.checked else "not checked"

    @property
    def words(self) -> str:
        """What there is to say: the problems, or else what was checked or why it was not."""
        return "; ".join(self.problems) or self.says


@dataclass(frozen=True, slots=True)
class Verification:
    """Every check of one release.

    Attributes:
        checks: Signature, files, certificate and, where it was asked for, ledger, in this order.
        signer: Fingerprint of the key beside the manifest, "unknown" if there is none.
    """

    checks: tuple[Check, ...]
    signer: str

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that disagrees."""
        return tuple(problem for check in self.checks for problem in check.problems)

    @property
    def sound(self) -> bool:
        """Whether all that was checked agrees; it says nothing of what was not checked."""
        return not self.problems
