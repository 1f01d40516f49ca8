"""`guarded demo`: two scripted agents, one of each framework, meet one guard over a small database."""
