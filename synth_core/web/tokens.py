"""Signed form tokens: a proof that a request to change something comes from a page made for this person.

A cookie goes along with any request, also with one that another site makes the browser send; a token does not. It
is bound to the person and to what may be changed, and it expires.
"""

from __future__ import annotations

import hashlib
import hmac
import time

LIFETIME_SECONDS = 2 * 60 * 60


def issue(secret: str, *, person: str, purpose: str, now: float | None = None) -> str:
    """A token for this person and purpose."""
    expires = str(int((time.time() if now is None else now) + LIFETIME_SECONDS))
    return f"{expires}.{_signature(secret, expires, person, purpose)}"


def valid(token: str, *, secret: str, person: str, purpose: str, now: float | None = None) -> bool:
    """Whether the token was issued for this person and purpose and has not expired."""
    expires, _, signature = token.partition(".")
    if not hmac.compare_digest(signature.encode(), _signature(secret, expires, person, purpose).encode()):
        return False
    return int(expires) > (time.time() if now is None else now)


def _signature(secret: str, *parts: str) -> str:
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret.encode(), message.encode(), hashlib.sha256).hexdigest()
