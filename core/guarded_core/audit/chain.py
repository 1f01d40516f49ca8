"""The hash chain under a trail: keys, seals, and heads that pin how far a chain had come.

Each link's digest covers the digest before it: ``digest = seal(previous + link)``. A seal is SHA-256, or HMAC-SHA256
where a key is given; digests are 64 hex digits, as ASCII bytes where they are hashed and compared.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Self, TypeAlias

import orjson

from guarded_core.ground.errors import ToolAuditTrailError

Seal: TypeAlias = Callable[[bytes], bytes]
KeysLike: TypeAlias = "AuditKeys | Mapping[str, bytes] | Sequence[bytes] | bytes | None"

PLAIN = "-"  # the key id of links that are sealed without a key
ORIGIN = b"0" * 64  # what the first link of a trail follows
MIN_SECRET = 16
MAX_KEY_FILE = 64 * 1024

_KEY_ID = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEAD_FIELDS = {"trail": str, "segment": int, "count": int, "digest": str, "closed": bool, "key": str, "seal": str}


def plain_seal(data: bytes) -> bytes:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest().encode()


def keyed_seal(secret: bytes) -> Seal:
    """HMAC-SHA256 in hex under `secret`, at most 64 bytes."""
    # RFC 2104 by hand, with both pads made once: half the time of hmac.digest for short messages.
    sha256 = hashlib.sha256
    inner = bytes(byte ^ 0x36 for byte in secret.ljust(64, b"\0"))
    outer = bytes(byte ^ 0x5C for byte in secret.ljust(64, b"\0"))

    def seal(data: bytes) -> bytes:
        return sha256(outer + sha256(inner + data).digest()).hexdigest().encode()

    return seal


class AuditKeys:
    """The secrets that seal a trail, in order: the first seals what is written, all of them verify.

    To rotate, put the new secret first and keep the old ones for as long as their records are to be verified.

    Args:
        secrets: id → secret, or a list of secrets, whose ids are then derived from them. At least 16 bytes each; take
            ``secrets.token_bytes(32)``.

    Raises:
        ToolAuditTrailError: "invalid_keys": no secret at all, a short one, or an id that is not 1 to 64 letters,
            digits, ``_``, ``.`` or ``-``.
    """

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Mapping[str, bytes] | Sequence[bytes]) -> None:
        if isinstance(secrets, str) or not isinstance(secrets, Mapping | Sequence):
            raise ToolAuditTrailError("invalid_keys", "keys are bytes, a list of bytes, or bytes by id")
        if not isinstance(secrets, Mapping):
            secrets = {_derived_id(secret): secret for secret in secrets}
        if not secrets:
            # An empty list must not quietly become a trail without keys.
            raise ToolAuditTrailError("invalid_keys", "no key is given; leave keys out for a trail without")
        for key_id, secret in secrets.items():
            if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
                raise ToolAuditTrailError("invalid_keys", "a key id is 1 to 64 letters, digits, '_', '.' or '-'")
            _check_secret(secret)
        self._secrets = dict(secrets)

    @classmethod
    def of(cls, keys: KeysLike) -> AuditKeys | None:
        """The keys that `keys` stands for: one secret, a list, a mapping; None for none. Raises as the class does."""
        if keys is None or isinstance(keys, AuditKeys):
            return keys
        return cls([keys] if isinstance(keys, bytes) else keys)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Keys from lines ``id = hex``, the first one first; empty lines and ``#`` comments are skipped.

        Raises:
            ToolAuditTrailError: "invalid_keys", with the number of the line.
        """
        secrets: dict[str, bytes] = {}
        for number, line in enumerate(text.splitlines(), 1):
            key_id, equals, digits = line.partition("#")[0].partition("=")
            if not key_id.strip() and not equals:
                continue
            try:
                secret = bytes.fromhex(digits.strip())
            except ValueError:
                secret = b""
            if not equals or not secret or key_id.strip() in secrets:
                raise ToolAuditTrailError("invalid_keys", f"line {number} is not a new 'id = hex digits'")
            secrets[key_id.strip()] = secret
        return cls(secrets)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> Self:
        """Keys from a file of such lines. Raises ToolAuditTrailError: "invalid_keys"."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(MAX_KEY_FILE)
            return cls.from_text(text)
        except (OSError, ValueError):
            text = "the key file cannot be read as text"
            raise ToolAuditTrailError("invalid_keys", text, path=os.fspath(path)) from None
        except ToolAuditTrailError as error:
            raise error.at(os.fspath(path)) from None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the keys; the first is the one that seals."""
        return tuple(self._secrets)

    def derive(self, purpose: str, key_id: str | None = None) -> bytes:
        """A 32-byte key for one purpose, from the key of that id or the first.

        No secret seals two kinds of things: the trail uses "audit-chain"; an application's payload digests another.

        Raises:
            ToolAuditTrailError: "unknown_key": there is no key of that id.
        """
        secret = self._secrets.get(self.ids[0] if key_id is None else key_id)
        if secret is None:
            raise ToolAuditTrailError("unknown_key", "a record or head is sealed with a key that was not given")
        return hmac.digest(secret, b"guarded-tools " + purpose.encode(), "sha256")

    def __repr__(self) -> str:
        return f"<AuditKeys {', '.join(self.ids)}>"


def _check_secret(secret: object) -> None:
    if not isinstance(secret, bytes) or len(secret) < MIN_SECRET:
        raise ToolAuditTrailError("invalid_keys", f"a key is at least {MIN_SECRET} bytes; take secrets.token_bytes(32)")


def _derived_id(secret: bytes) -> str:
    _check_secret(secret)
    return hmac.digest(secret, b"id of a guarded-tools key", "sha256").hex()[:16]


def signing_id(keys: AuditKeys | None) -> str:
    """The key id that new links carry."""
    return PLAIN if keys is None else keys.ids[0]


def seal_for(keys: AuditKeys | None, key_id: str) -> Seal:
    """How links of that key id are sealed.

    Raises:
        ToolAuditTrailError: "unknown_key": no such key is given; "unkeyed": keys are given, and this link has none.
    """
    if keys is None and key_id == PLAIN:
        return plain_seal
    if key_id == PLAIN:
        # Anybody can write such a link: with keys in hand it proves nothing.
        raise ToolAuditTrailError("unkeyed", "a record or head is sealed without a key, and keys were given")
    if keys is None:
        raise ToolAuditTrailError("unknown_key", "a record or head is sealed with a key, and none was given")
    return keyed_seal(keys.derive("audit-chain", key_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How far a chain had come, sealed: kept beside the trail, and worth keeping somewhere else too.

    ``str(head)`` is one line of JSON, `parse` reads it again. A trail that does not contain a head's position was cut
    or rewritten after the head was taken.

    Attributes:
        trail: the trail's random id.
        segment: number of the segment, from 1.
        count: records in the whole trail up to here.
        digest: the chain's digest here.
        closed: whether the writer closed the trail here, so that nothing may follow.
        key: id of the key that seals the head, ``-`` for none.
        seal: over all of the above.
    """

    trail: str
    segment: int
    count: int
    digest: str
    closed: bool
    key: str
    seal: str

    @classmethod
    def sealed(
        cls, keys: AuditKeys | None, *, trail: str, segment: int, count: int, digest: str, closed: bool = False
    ) -> Head:
        """A head sealed with the first of `keys`."""
        key = signing_id(keys)
        bare = cls(trail=trail, segment=segment, count=count, digest=digest, closed=closed, key=key, seal="")
        return replace(bare, seal=bare._expected_seal(keys))

    def check(self, keys: AuditKeys | None) -> None:
        """Raise ToolAuditTrailError ("head_invalid", "unkeyed", "unknown_key") unless it is sealed by one of `keys`."""
        if not hmac.compare_digest(self.seal.encode(), self._expected_seal(keys).encode()):
            raise ToolAuditTrailError("head_invalid", "the head is not what was sealed: it was changed")

    @classmethod
    def parse(cls, text: str | bytes) -> Head:
        """The head of that line; not checked yet. Raises ToolAuditTrailError: "head_invalid"."""
        try:
            record: Any = orjson.loads(text)
            fields = {name: record[name] for name in _HEAD_FIELDS}
        except (orjson.JSONDecodeError, KeyError, TypeError):
            fields = {}
        wrong = [name for name, kind in _HEAD_FIELDS.items() if type(fields.get(name)) is not kind]
        if wrong or len(record) != len(fields) or not _DIGEST.fullmatch(fields["digest"]):
            raise ToolAuditTrailError("head_invalid", "the head cannot be read")
        return cls(**fields)

    def __str__(self) -> str:
        return orjson.dumps(self).decode()

    def _expected_seal(self, keys: AuditKeys | None) -> str:
        body = orjson.dumps(replace(self, seal=""))
        # A link begins with a digest: no link can be passed off as a head, nor a head as a link.
        return seal_for(keys, self.key)(b"guarded-audit head:" + body).decode()
