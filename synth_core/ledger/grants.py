"""The PostgreSQL role under which releases run: it may read and append, and the server refuses it all else.

Migrations are run once by the owner of the tables; a release never needs the owner's rights. Triggers refuse even
the owner's UPDATE, DELETE and TRUNCATE, but an owner can drop a trigger: only a role that owns nothing is bound.
"""

from __future__ import annotations

import re

from synth_core.errors import LedgerError

ROLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def append_only_grants(role: str) -> list[str]:
    """The statements that the tables' owner runs once to make an existing role append-only."""
    if not ROLE.fullmatch(role):
        raise LedgerError(
            f"{role!r} is not a plain role name; use lower-case letters, digits and underscores"
        )
    tables = "ledger_records, ledger_answers"
    return [
        f"REVOKE ALL ON {tables}, ledger_version FROM PUBLIC, {role};",
        f"GRANT SELECT, INSERT ON {tables} TO {role};",
        f"GRANT SELECT ON ledger_version TO {role};",
    ]
