"""A rule with a cost ceiling, the commit ledger and its chained audit in SQLite; each call is a new one."""

import itertools

import airlock
from airlock import Decision, Effect, Money, Policy, Reversibility, Rule


def make(folder, arguments):
    @airlock.guard(
        "pay",
        cost=Money(amount="12.50", currency="EUR"),
        reversibility=Reversibility.IRREVERSIBLE,
        effect=Effect(key_param="idempotency_key"),
    )
    def pay(number, to, amount, currency, url, items, *, idempotency_key=None):
        return {"result": "paid"}

    rule = Rule(match="pay", decision=Decision.AUTO, max_cost=Money(amount="100.00", currency="EUR"))
    airlock.init(store=f"sqlite:///{folder}/airlock.db", policy=Policy(rules=[rule]))
    numbers = itertools.count()
    given = {**arguments, "amount": str(arguments["amount"])}  # it takes no float
    return lambda: pay(next(numbers), **given)["result"]
