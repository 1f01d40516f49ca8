"""`govern` with a policy that denies by default, one rule over an argument, and its audit log in memory."""

from agentmesh.governance import govern

POLICY = """
apiVersion: governance.toolkit/v1
name: bench
agents: ["*"]
default_action: deny
rules:
  - name: allow-pay
    condition: "action.type == 'pay'"
    action: allow
"""


def make(folder, arguments):
    def pay(action, to, amount, currency, url, items):
        return "paid"

    governed = govern(pay, policy=POLICY)
    return lambda: governed(action={"type": "pay"}, **arguments)
