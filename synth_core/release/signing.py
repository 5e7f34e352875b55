"""Signatures of manifests: an Ed25519 key pair, made on first use, its public half published beside each release."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from synth_core.errors import PublishError
from synth_core.files import explain, read_file, write_once
from synth_core.names import SIGNING_KEY
from synth_core.release.paths import ReleasePaths
from synth_core.settings import Settings


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A public key that is known to be the publisher's, from elsewhere than the release.

    Attributes:
        pem: The key, as `public_pem` writes it; empty if it could not be read.
        name: What people call it, or why it could not be read.
    """

    pem: str
    name: str


def key_path(paths: ReleasePaths) -> Path:
    """Where the private key is: as SYNTH_SIGNING_KEY says, else in the workspace's confidential zone."""
    named = Settings.from_environment().signing_key
    return Path(named) if named else paths.key(SIGNING_KEY)


def private_key(path: Path, *, create: bool) -> Ed25519PrivateKey:
    """Read the private key; where `create` allows it and there is none, make one that only its owner can read."""
    if create and not path.exists():
        _make_key(path)
    try:
        key = serialization.load_pem_private_key(read_file(path), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        raise PublishError(
            f"signing key {path} cannot be read as an unencrypted PEM private key; check SYNTH_SIGNING_KEY"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PublishError(f"signing key {path} is not an Ed25519 key; make one with `openssl genpkey`")
    return key


def _make_key(path: Path) -> None:
    """Draw a key; where another runner was first, its key is the workspace's."""
    text = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    try:
        write_once(path, text)
    except OSError as error:
        raise PublishError(f"signing key {path} cannot be written: {explain(error)}") from None


def signature(content: bytes, key: Ed25519PrivateKey) -> str:
    """The signature of the content, as text."""
    return _text(key.sign(content))


def public_pem(key: Ed25519PrivateKey) -> str:
    """The public half of the key, as PEM text."""
    return _pem(key.public_key())


def canonical_pem(pem: str) -> str:
    """A public key in PEM, spelled as `public_pem` spells it.

    Raises:
        ValueError: The text is no Ed25519 public key.
    """
    return _pem(_public(pem))


def fingerprint(pem: str) -> str:
    """A short name of a public key that people can compare: SHA-256 of its raw bytes, in groups of four."""
    raw = _public(pem).public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    digest = hashlib.sha256(raw).hexdigest()[:32]
    return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


def is_signed_by(content: bytes, signed: str, pem: str) -> bool:
    """Whether the signature is that of the content by the key, both written as `signature` and `public_pem` do.

    Another spelling of the same bytes is refused, so that no byte of either file can be changed unseen.
    """
    try:
        raw = base64.b64decode(signed)
        _public(pem).verify(raw, content)
    except (InvalidSignature, ValueError):
        return False
    return signed == _text(raw) and pem == _pem(_public(pem))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode() + "\n"


def _pem(key: Ed25519PublicKey) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form).decode()


def _public(pem: str) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ValueError("not a public key") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    return key
