"""The demo's small shop: a real SQLite database of orders and invoices, and what an agent's tools do with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_TABLES = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, item TEXT, paid_cents INTEGER, refunded_cents INTEGER);
CREATE TABLE invoices (id INTEGER PRIMARY KEY, order_id INTEGER REFERENCES orders (id));
INSERT INTO orders VALUES (7, 'Ann Example', 'Kettle', 4900, 0), (8, 'Bo Example', 'Lamp', 8900, 0);
INSERT INTO invoices VALUES (70, 7), (80, 8);
"""


class Shop:
    """Orders and invoices in a database file.

    Args:
        path: where to make it; must not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(_TABLES)

    def look_up_order(self, order_id: int) -> dict[str, object]:
        """Look up an order: its customer, item, and what was paid and refunded, in cents."""
        names = ("customer", "item", "paid_cents", "refunded_cents")
        with closing(sqlite3.connect(self._path)) as database:
            found = database.execute(f"SELECT {', '.join(names)} FROM orders WHERE id = ?", (order_id,)).fetchone()  # noqa: S608
        if found is None:
            raise LookupError("no such order")
        return dict(zip(names, found, strict=True))

    def refund_order(self, order_id: int, cents: int) -> str:
        """Pay money back for an order."""
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("UPDATE orders SET refunded_cents = refunded_cents + ? WHERE id = ?", (cents, order_id))
        return f"refunded {cents} cents"

    def delete_invoice(self, invoice_id: int) -> str:
        """Delete an invoice for good."""
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("DELETE FROM invoices WHERE id = ?", (invoice_id,))
        return "deleted"

    @property
    def refunds(self) -> dict[int, int]:
        """Cents refunded so far, by order."""
        with closing(sqlite3.connect(self._path)) as database:
            return dict(database.execute("SELECT id, refunded_cents FROM orders"))

    @property
    def invoices(self) -> list[int]:
        """The invoices that are left."""
        with closing(sqlite3.connect(self._path)) as database:
            return [row[0] for row in database.execute("SELECT id FROM invoices ORDER BY id")]
