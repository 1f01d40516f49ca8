"""One scope, a ceiling over an argument and a budget of calls, with its chained log in a file."""

from attenu_guard import Authority, CallLimit, Guard, RowLimit


def make(folder, arguments):
    ceilings = [RowLimit(100), CallLimit(10**9)]
    authority = Authority(scopes={"tool.pay"}, ceilings=ceilings, ttl=3600)
    guard = Guard.issue("bench", authority, audit_path=f"{folder}/attenu.jsonl")

    def pay(to, amount, currency, url, items):
        return "paid"

    def call():
        guard.enforce("tool.pay", context={"rows": arguments["amount"]})
        return pay(**arguments)

    return call
