"""Who writes the audit trail of a SQL store: one hash chain a writer, and a chain of writers over them.

Every open store that writes is a writer, or several; none ever continues another's chain, so that no two wait for each
other, and none can write in another's name. The lines are those of the file trail (audit/frames.py).
"""

from __future__ import annotations

import time

import orjson
from sqlalchemy import Connection

from guarded_core.audit.chain import ORIGIN, AuditKeys, Head, Seal, seal_for, signing_id
from guarded_core.audit.event import AuditEvent
from guarded_core.audit.frames import DIGEST, Header, encode_event, encode_frame
from guarded_core.ground.errors import ToolAuditTrailError
from guarded_core.ground.ids import new_id
from guarded_core.store.sql.database import Database
from guarded_core.store.sql.statements import add_writer, close_writer, last_writer, written_event


class Writer:
    """Appends to one chain; for one transaction at a time.

    Where a transaction may or may not have been committed, `append` in the next try finds out.

    Attributes:
        position: how many records the chain has in the transaction that is going on, and the last one's digest.
        is_in_doubt: whether a COMMIT was never answered. Then the chain ends here: another writer begins one.
    """

    def __init__(self, database: Database, number: int, trail: str, keys: AuditKeys | None, digest: bytes) -> None:
        self._append = database.statements.append
        self._number = number
        self._trail = trail
        self._keys = keys
        self._key = signing_id(keys).encode()
        self._seal = seal_for(keys, signing_id(keys))
        self._kept = (0, digest)  # the position that is known to be on record
        self.position = self._kept
        self.is_in_doubt = False

    def append(self, connection: Connection, event: AuditEvent) -> bool:
        """Write the next event; False where an earlier try of this transaction has written it already.

        Raises:
            ToolAuditTrailError: "already_ended": the call has another known end; "writer_shared": somebody else has
                written here, such as a copy of this process; "invalid_event", "event_too_large".
        """
        count, previous = self.position[0] + 1, self.position[1]
        line, digest = encode_frame(count, self._key, encode_event(event), previous, self._seal)
        columns = {
            "writer": self._number,
            "seq": count,
            "time_ns": event.time_ns,
            "call_id": event.call_id,
            "outcome": event.outcome.value,
            "tool": event.tool,
            "principal": event.principal,
            "line": line[:-1].decode(),
        }
        is_new = connection.execute(self._append, columns).first() is not None
        if not is_new:
            digest = self._written(connection, count, event)
        self.position = (count, digest)
        return is_new

    def _written(self, connection: Connection, count: int, event: AuditEvent) -> bytes:
        row = connection.execute(written_event, {"writer": self._number, "seq": count}).first()
        if row is None:
            raise ToolAuditTrailError("already_ended", "this call has ended already, with another outcome on record")
        if (row.call_id, row.outcome) != (event.call_id, event.outcome.value):
            raise ToolAuditTrailError("writer_shared", "somebody else has written to this writer's chain")
        digest: bytes = row.line.encode()[-DIGEST:]
        return digest

    def begin(self) -> None:
        """Start a transaction, or start it anew: what an earlier try appended was not kept."""
        self.position = self._kept

    def keep(self) -> None:
        """The transaction was committed."""
        self._kept = self.position
        self.is_in_doubt = False

    def close(self, connection: Connection) -> None:
        """Seal where the chain ends, so that a cut shows; nothing may be appended afterwards."""
        count, digest = self._kept
        head = Head.sealed(self._keys, trail=self._trail, segment=1, count=count, digest=digest.decode(), closed=True)
        connection.execute(close_writer, {"of": self._number, "head": str(head)})


def register(database: Database, keys: AuditKeys | None) -> Writer:
    """A new writer, in the chain of writers."""
    key = signing_id(keys).encode()
    seal = seal_for(keys, signing_id(keys))

    def work(connection: Connection) -> Writer:
        database.lock(connection, "guarded writers")
        last = connection.execute(last_writer).first()
        if last is None:
            registry, begins, digest = _begin(key, seal)
            connection.execute(add_writer, {"n": 0, "id": registry, "header": begins, "line": ""})
        else:
            digest = (last.line or last.header).encode()[-DIGEST:]
        number = last.n + 1 if last else 1
        trail, begins, begun = _begin(key, seal)
        line, _ = encode_frame(number, key, entry(trail, begun), digest, seal)
        connection.execute(add_writer, {"n": number, "id": trail, "header": begins, "line": line[:-1].decode()})
        return Writer(database, number, trail, keys, begun)

    return database.transact(work)


def _begin(key: bytes, seal: Seal) -> tuple[str, str, bytes]:
    """The id of a new chain, its header line and that line's digest."""
    header = Header(trail=new_id(), segment=1, count=0, previous=ORIGIN.decode(), created_ns=time.time_ns())
    line, digest = header.encode(key, seal)
    return header.trail, line[:-1].decode(), digest


def entry(trail: str, digest: bytes) -> bytes:
    """What the chain of writers says of one: that its chain begins with the header of that digest."""
    return orjson.dumps({"digest": digest.decode(), "trail": trail})
