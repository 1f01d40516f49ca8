"""What a store keeps of a session's memory is sealed: nobody reads it there, changes it, or puts it elsewhere."""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


class Seals:
    """AES-256-GCM under a key of each session's own; the id of the key that it is derived from stands in front.

    Args:
        keys: 32 bytes each by id, the first one seals, all of them open.

    Raises:
        ImportError: the package cryptography is not installed.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        def cipher(key_id: str, session: str) -> AESGCM:
            # A key a session: no number of sessions wears out the nonces of one.
            return AESGCM(hmac.digest(keys[key_id], session.encode("utf-8", "surrogatepass"), "sha256"))

        self._ids = tuple(keys)
        self._cipher = lru_cache(maxsize=64)(cipher)

    def seal(self, text: bytes, session: str, *about: str) -> bytes:
        """`text`, sealed for its place: a session, and what else tells it from others."""
        key_id, nonce = self._ids[0], os.urandom(_NONCE)
        sealed = self._cipher(key_id, session).encrypt(nonce, text, _place(key_id, session, *about))
        return key_id.encode() + b":" + nonce + sealed

    def open(self, sealed: bytes, session: str, *about: str) -> bytes:
        """What was sealed for that very place.

        Raises:
            ValueError: it was not: another place, another key, or it was changed.
        """
        from cryptography.exceptions import InvalidTag

        name, _, rest = sealed.partition(b":")
        key_id = name.decode("ascii", "replace")
        if key_id not in self._ids or len(rest) <= _NONCE:
            raise ValueError("sealed with a key that was not given")
        try:
            return self._cipher(key_id, session).decrypt(rest[:_NONCE], rest[_NONCE:], _place(key_id, session, *about))
        except InvalidTag:
            raise ValueError("not what was sealed there") from None


def _place(*parts: str) -> bytes:
    # Length prefixes: no two places are written alike.
    return "".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")
