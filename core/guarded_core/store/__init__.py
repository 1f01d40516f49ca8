"""Budgets, windows, approvals and the ledger: kept together, so that a call takes all of them or none."""
