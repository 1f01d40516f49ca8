"""A policy that denies by default and allows one domain, with its signed audit log in a file."""

from agentguard import Guard


def make(folder, arguments):
    rules = [{"capability": "network.request", "domains": ["api.test"], "effect": "allow"}]
    guard = Guard({"version": 1, "defaults": {"effect": "deny"}, "rules": rules}, audit=f"{folder}/agentguard.jsonl")

    @guard.tool(capability="network.request")
    def pay(to: str, amount: float, currency: str, url: str, items: list) -> str:
        """Pays."""
        return "paid"

    return lambda: pay(**arguments)
