"""An allowlist with a validator over one argument and a budget of calls, with its audit log in memory."""

from tool_call_guard import Guard


def make(folder, arguments):
    rule = {"validate": lambda given: given["amount"] <= 100 or "too much", "maxCalls": 10**9}
    guard = Guard({"defaultAction": "deny", "tools": {"pay": rule}})
    pay = guard.wrap("pay", lambda given: "paid")
    return lambda: pay(arguments)
