"""A person's one-use approval of exactly one payload: requests, decisions, and who is asked."""
