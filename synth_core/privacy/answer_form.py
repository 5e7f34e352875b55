"""What was asked and what the answer is: the part of a ledger record by which an answer is found and read again.

A question's fingerprint is a digest of everything that determines it, so that another reference, weight, box, group or
matrix makes another question. The blocks say what the numbers of the stored vector are, so that nothing is guessed.
Both are public: they come from public declarations and from answers that were given before.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synth_core.domain import Clique
from synth_core.errors import LedgerError

Groups = tuple[tuple[int, ...] | None, ...]
"""For each attribute of a clique the group of each of its codes, or None where the codes stay as they are."""


class AnswerKind(StrEnum):
    """What the numbers of a block are."""

    MARGINAL = "marginal"  # noisy counts of the cells of a clique
    MERGED = "merged marginal"  # noisy counts of a clique's cells after some codes were merged
    STRATEGY = "strategy answers"  # noisy answers of other linear queries about a clique
    SCORES = "scores"  # one noisy value for each query
    CHOICES = "choices"  # positions of the chosen queries among those that were offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Consecutive numbers of a stored answer that belong together, in C order of `shape`.

    `clique` names the axes of tables and of strategies; `groups` is there for merged marginals, `strategy`, the digest
    of its matrices, for other linear queries.
    """

    kind: AnswerKind
    shape: tuple[int, ...]
    clique: Clique = ()
    groups: Groups = ()
    strategy: str = ""

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The fingerprint of a question, and the blocks of its answer in their order."""

    fingerprint: str
    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """The length of the stored vector."""
        return sum(block.size for block in self.blocks)

    def split(self, answer: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The vector's blocks, each in its shape.

        Raises:
            LedgerError: the vector has another length than the blocks.
        """
        if len(answer) != self.size:
            raise LedgerError("a stored answer is not as long as its record says; run: synth ledger verify")
        ends = np.cumsum([block.size for block in self.blocks])[:-1]
        return [part.reshape(block.shape) for part, block in zip(np.split(answer, ends), self.blocks, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """The form as plain data; groups that several blocks share are written once."""
        shared = list(dict.fromkeys(groups for block in self.blocks for groups in block.groups if groups))
        numbers = {groups: number for number, groups in enumerate(shared)}
        return {
            "fingerprint": self.fingerprint,
            "groups": [list(groups) for groups in shared],
            "blocks": [
                {
                    "kind": block.kind.value,
                    "shape": list(block.shape),
                    "clique": list(block.clique),
                    "groups": [None if groups is None else numbers[groups] for groups in block.groups],
                    "strategy": block.strategy,
                }
                for block in self.blocks
            ],
        }

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> AnswerForm:
        """Read what `to_json` wrote.

        Raises:
            LedgerError: something is missing, unknown or malformed.
        """
        try:
            shared = [tuple(map(int, groups)) for groups in written["groups"]]
            blocks = [
                Block(
                    kind=AnswerKind(block["kind"]),
                    shape=tuple(map(int, block["shape"])),
                    clique=tuple(block["clique"]),
                    groups=tuple(None if at is None else shared[at] for at in block["groups"]),
                    strategy=block["strategy"],
                )
                for block in written["blocks"]
            ]
            return cls(fingerprint=str(written["fingerprint"]), blocks=tuple(blocks))
        except (KeyError, IndexError, TypeError, ValueError):
            raise LedgerError("the form of an answer cannot be read; run: synth ledger verify") from None


def fingerprint(verb: str, facts: Sequence[Any]) -> str:
    """The digest of a question.

    Args:
        verb: what the curator was asked to do.
        facts: for each query or table, as plain lists, texts and integers, all that determines it. Floats are refused
            by convention: what is asked lies on the grid, and is written in its units.

    Returns:
        SHA-256 of the facts' one JSON text, the same in every process and on every machine.
    """
    text = json.dumps([verb, *facts], separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def array_facts(array: NDArray[Any]) -> list[Any]:
    """Integers of any shape as facts: the shape, and a digest of the numbers as little-endian 64-bit integers."""
    numbers = np.ascontiguousarray(array, dtype="<i8")
    return [list(array.shape), hashlib.sha256(numbers.tobytes()).hexdigest()]
