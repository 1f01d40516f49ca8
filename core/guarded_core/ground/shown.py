"""Something that notebooks and rich consoles show as a card; the cards themselves are drawn far above the ground."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_CARDS = "guarded_core.display.cards"


class Shown:
    """What shows itself: `guarded_core.display.cards` has the card of each kind, and is loaded when one is shown."""

    __slots__ = ()

    def _card(self) -> Any:
        return import_module(_CARDS).card(self)

    def _repr_html_(self) -> str:
        html: str = import_module(_CARDS).card_html(self._card())
        return html

    def __rich__(self) -> Any:
        return import_module(_CARDS).card_rich(self._card())
