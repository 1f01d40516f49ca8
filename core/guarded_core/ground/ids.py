"""Ids that nobody can guess."""

from __future__ import annotations

import os


def new_id() -> str:
    """32 unguessable hex digits."""
    return os.urandom(16).hex()
