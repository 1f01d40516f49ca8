"""AgentDojo's tools behind the guard, replayed without a model."""
