"""The dataclass that a call passes from step to step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """A keyword-only dataclass with slots, frozen for type checkers.

    Freezing at run time makes an instance three times as dear, and each call makes a dozen that never leave the core.
    Its repr says no more than what it is: what it holds leads to payloads.
    """
    return dataclass(slots=True, kw_only=True, repr=False)(cls)
