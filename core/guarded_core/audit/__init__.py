"""Evidence: the event, the sinks that keep it, and the chain that shows it was not changed."""
