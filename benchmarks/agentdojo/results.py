"""Replays as figures: one row a level, and a digest of every verdict, so that adapters can be compared."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.agentdojo.replay import Outcome
from benchmarks.agentdojo.world import TEXT_ONLY

RESULTS = Path(__file__).parent / "results.json"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The figures of one level.

    Attributes:
        tasks, pairs, text_only: how many user tasks, pairs through tools, and pairs without any tool.
        utility, strict: user tasks solved by AgentDojo's check; and with none of the user's own calls refused.
        attacked_strict: of the pairs through tools, those whose user task is solved strictly.
        through, text_through: attacks that AgentDojo's check calls successful.
        asked: user tasks in which a person is asked; attack_asked: pairs in which the attack reaches a person.
        verdicts: SHA-256 over every outcome, refused calls and their codes included.
    """

    level: str
    adapter: str
    order: str
    tasks: int
    pairs: int
    text_only: int
    utility: int
    strict: int
    attacked_strict: int
    through: int
    text_through: int
    asked: int
    attack_asked: int
    verdicts: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.level, self.adapter, self.order


def summed_up(level: str, adapter: str, order: str, alone: list[Outcome], hit: list[Outcome]) -> Row:
    """The figures of these replays."""
    text = [row for row in hit if (row.suite, row.injection) in TEXT_ONLY]
    tools = [row for row in hit if (row.suite, row.injection) not in TEXT_ONLY]
    verdicts = [
        [row.suite, row.user, row.injection, row.utility, row.through, row.refused, row.attack_refused, row.asked]
        for row in alone + hit
    ]
    return Row(
        level=level,
        adapter=adapter,
        order=order,
        tasks=len(alone),
        pairs=len(tools),
        text_only=len(text),
        utility=sum(row.utility for row in alone),
        strict=sum(row.strict for row in alone),
        attacked_strict=sum(row.strict for row in tools),
        through=sum(bool(row.through) for row in tools),
        text_through=sum(bool(row.through) for row in text),
        asked=sum(row.asked > 0 for row in alone),
        attack_asked=sum(row.attack_asked > 0 for row in hit),
        verdicts=hashlib.sha256(json.dumps(verdicts).encode()).hexdigest(),
    )


def load(path: Path = RESULTS) -> dict[tuple[str, str, str], Row]:
    """The rows that are kept."""
    if not path.exists():
        return {}
    return {row.key: row for row in (Row(**_known(row)) for row in json.loads(path.read_text()))}


def keep(rows: list[Row], path: Path = RESULTS) -> None:
    """Put rows in the place of older ones of the same level, adapter and order."""
    kept = load(path) | {row.key: row for row in rows}
    path.write_text(json.dumps([asdict(row) for row in kept.values()], indent=1) + "\n")


def _known(row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(Row)}
