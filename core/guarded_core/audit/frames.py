"""The trail's file format: a header line, then one line a record, each sealed together with the digest before it.

::

    guarded-audit:1:KEY:{"trail":"…","segment":1,"count":0,"previous":"00…","created_ns":…}:DIGEST
    1:001c7:KEY:{"call_id":…}:DIGEST
    COUNT:LENGTH:KEY:EVENT:DIGEST

COUNT is decimal and runs through all segments; LENGTH is the whole line's, its newline included, in five hex digits;
KEY is a key id or ``-``; EVENT is the event as JSON with sorted keys; DIGEST seals the digest of the line before and
everything on this line before it. A header follows the last line of the segment before, whose digest it repeats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from guarded_core.audit.chain import Seal
from guarded_core.audit.event import AuditEvent, Outcome
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.tools.spec import ToolRisk

MAGIC = b"guarded-audit:"
VERSION = b"1"
DIGEST = 64
MAX_EVENT = 16 * 1024
MAX_LINE = MAX_EVENT + 256

# A terminal event repeats its Authorized event, with a code and an error type of at most 128 bytes more: as JSON, each
# byte takes six at the worst.
TERMINAL_GROWTH = 2 * (6 * 128 + 20)

_FRAME = re.compile(rb"[0-9]{1,19}:([0-9a-f]{5}):[!-9;-~]{1,64}:\{.*\}:[0-9a-f]{64}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a segment begins with.

    Attributes:
        trail: the trail's random id, the same in all segments.
        segment: number of the segment, from 1.
        count: records in the segments before.
        previous: digest of the last line of the segment before.
        created_ns: nanoseconds since the epoch.
    """

    trail: str
    segment: int
    count: int
    previous: str
    created_ns: int

    def encode(self, key: bytes, seal: Seal) -> tuple[bytes, bytes]:
        """The header line, and its digest."""
        body = MAGIC + b"%s:%s:%s:" % (VERSION, key, orjson.dumps(self))
        digest = seal(self.previous.encode() + body)
        return body + digest + b"\n", digest


def parse_header(line: bytes) -> tuple[Header, str]:
    """The header of a line without its newline, and the key id it names; not checked against its digest yet.

    Raises:
        ToolAuditTrailError: "not_a_trail", "unsupported_version", "corrupt".
    """
    if not line.startswith(MAGIC):
        raise ToolAuditTrailError("not_a_trail", "the file does not begin like an audit trail")
    version, _, rest = line.removeprefix(MAGIC).partition(b":")
    if version != VERSION:
        raise ToolAuditTrailError("unsupported_version", "the trail is of a version that this release cannot read")
    key, _, rest = rest.partition(b":")
    try:
        header = Header(**orjson.loads(rest[: -DIGEST - 1]))
        numbers = (header.segment, header.count, header.created_ns)
        texts = (header.trail, header.previous)
        whole = all(type(n) is int and n >= 0 for n in numbers) and all(type(t) is str for t in texts)
    except (orjson.JSONDecodeError, TypeError):
        whole = False
    if not whole:
        raise ToolAuditTrailError("corrupt", "the segment's header is damaged")
    return header, key.decode("ascii", "replace")


def encode_event(event: AuditEvent) -> bytes:
    """The event as it is sealed.

    Raises:
        ToolAuditTrailError: "invalid_event", or "event_too_large": more than 16 KiB.
    """
    try:
        event.check()
        # What could not be read back would make the whole trail unreadable.
        if type(event.outcome) is not Outcome or type(event.risk) not in (ToolRisk, type(None)):
            raise TypeError
        body = orjson.dumps(event.to_json(), option=orjson.OPT_SORT_KEYS)
    except (AttributeError, TypeError, ValueError):
        raise ToolAuditTrailError("invalid_event", "the event cannot be recorded: a field is wrong") from None
    if len(body) > MAX_EVENT:
        raise ToolAuditTrailError("event_too_large", f"an event is at most {MAX_EVENT:,} bytes")
    return body


def encode_frame(count: int, key: bytes, body: bytes, previous: bytes, seal: Seal) -> tuple[bytes, bytes]:
    """The line of record number `count`, and its digest."""
    number = b"%d" % count
    length = len(number) + 1 + 5 + 1 + len(key) + 1 + len(body) + 1 + DIGEST + 1
    line = b"%s:%05x:%s:%s:" % (number, length, key, body)
    digest = seal(previous + line)
    return line + digest + b"\n", digest


def frame_event(line: bytes) -> AuditEvent:
    """The event of a verified line without its newline. Raises ToolAuditTrailError: "corrupt"."""
    count, _, _, body = line[: -DIGEST - 1].split(b":", 3)
    try:
        record: Any = orjson.loads(body)
        return AuditEvent.from_json(record)
    except ValueError:
        raise ToolAuditTrailError("corrupt", f"record {int(count)} holds no valid event") from None


def is_frame(line: bytes) -> bool:
    """Whether a line without its newline has the shape and length of a whole record, sealed rightly or not."""
    shape = _FRAME.fullmatch(line)
    return shape is not None and int(shape[1], 16) == len(line) + 1
