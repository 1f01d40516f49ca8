"""Text that tools return, read as the structure that it was written from: JSON, tables, mail heads, fields, CSV.

Only a whole output is read so, never a text inside one: who wrote a mail's body would else write its fields. Where
two readings could be meant, such as a field that stands there twice, it stays text.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from typing import Any

_MAX_ROWS = 20_000
_FENCE = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.DOTALL)
_NAME = r"[^\W\d][\w .()/-]{0,39}"
_FIELD = re.compile(rf"[ \t]{{0,8}}(?:[-*][ ])?(?:\*\*)?({_NAME}?)(?:\*\*)?[ ]?[:=](?:\*\*)?(?:[ \t]+(.*))?")
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9-]{0,39}):[ \t]?(.*)", re.ASCII)
_MAIL_FIELDS = frozenset({"from", "to", "cc", "bcc", "subject", "date", "sender", "reply-to", "message-id"})
_COLUMN = re.compile(_NAME)
_RULE = re.compile(r"\|?(?:[ ]*:?-+:?[ ]*\|)*[ ]*:?-+:?[ ]*\|?")
_CELL = re.compile(r"(?<!\\)\|")


class _NotThat(Exception):
    """The text is not of this form."""


def structured(output: Any, *, any_form: bool = True) -> Any:
    """An output, taken apart where it is text that was written from a structure.

    Args:
        output: what a tool returned; a list of text blocks, as MCP has them, counts as its texts.
        any_form: read tables, fields and the like; otherwise JSON only.
    """
    if isinstance(output, str):
        return _read(output, any_form)
    texts = _blocks(output)
    if texts is None:
        return output
    read = [_read(text, any_form) for text in texts]
    return read[0] if len(read) == 1 else read


def _blocks(output: Any) -> list[str] | None:
    if not isinstance(output, list) or not output:
        return None
    is_text = [isinstance(block, dict) and block.get("type") == "text" and "text" in block for block in output]
    texts = [block["text"] for block in output if isinstance(block, dict) and isinstance(block.get("text"), str)]
    return texts if all(is_text) and len(texts) == len(output) else None


def _read(text: str, any_form: bool) -> Any:
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    stripped = fenced.group(1).strip() if fenced else stripped
    forms: list[Callable[[str], Any]] = [_json, _json_lines]
    if any_form:
        forms += [_table, _mail, _fields, _csv]
    for form in forms:
        try:
            return form(stripped)
        except _NotThat:
            continue
    return text


def _json(text: str) -> Any:
    if text[:1] not in ("{", "["):
        raise _NotThat
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise _NotThat from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; one with a key twice has two readings."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _json_lines(text: str) -> Any:
    lines = text.splitlines()
    if len(lines) < 2 or not all(line.startswith("{") for line in lines):
        raise _NotThat
    return [_json(line) for line in lines]


def _table(text: str) -> Any:
    """A Markdown table, and nothing beside it."""
    lines = [line.strip() for line in text.splitlines()]
    if len(lines) < 3 or "|" not in lines[0] or "-" not in lines[1] or _RULE.fullmatch(lines[1]) is None:
        raise _NotThat
    return _records([_cells(line) for line in (lines[0], *lines[2:])])


def _cells(line: str) -> list[str]:
    if "|" not in line:
        raise _NotThat
    return [cell.replace("\\|", "|").strip() for cell in _CELL.split(line.removeprefix("|").removesuffix("|"))]


def _csv(text: str) -> Any:
    lines = text.splitlines()
    if len(lines) < 2:
        raise _NotThat
    delimiter = max(",;\t|", key=lines[0].count)
    try:
        return _records([row for row in csv.reader(lines, delimiter=delimiter, strict=True) if row])
    except csv.Error:
        raise _NotThat from None


def _records(rows: list[list[str]]) -> list[dict[str, str]]:
    names = [name.strip() for name in rows[0]] if rows else []
    if not 2 <= len(names) <= 200 or len(set(names)) < len(names) or len(rows) > _MAX_ROWS:
        raise _NotThat
    if not all(map(_COLUMN.fullmatch, names)) or any(len(row) != len(names) for row in rows):
        raise _NotThat
    return [dict(zip(names, row, strict=True)) for row in rows[1:]]


def _mail(text: str) -> Any:
    """RFC 5322: fields, folded or not, an empty line, and all the rest as the body."""
    head, _, body = text.partition("\n\n")
    fields: dict[str, str] = {}
    name = ""
    for line in head.splitlines():
        found = _HEADER.fullmatch(line)
        if line[:1] in (" ", "\t") and name:
            fields[name] += " " + line.strip()
        elif found is None or found[1].casefold() in map(str.casefold, fields):
            raise _NotThat
        else:
            name = found[1]
            fields[name] = found[2].strip()
    if len(fields) < 2 or len(_MAIL_FIELDS.intersection(map(str.casefold, fields))) < 2 or "body" in fields:
        raise _NotThat
    return {**fields, "body": body}


def _fields(text: str) -> Any:
    """Lines of ``name: value``; blocks of the same fields, with empty lines between, are records."""
    records: list[dict[str, str]] = []
    for block in re.split(r"\n[ \t]*\n\s*", text):
        record: dict[str, str] = {}
        for line in block.splitlines():
            found = _FIELD.fullmatch(line)
            if found is None or found[1].strip() in record:
                raise _NotThat
            record[found[1].strip()] = (found[2] or "").strip()
        records.append(record)
    if not all(len(record) >= 2 and record.keys() == records[0].keys() for record in records):
        raise _NotThat
    return records[0] if len(records) == 1 else records
