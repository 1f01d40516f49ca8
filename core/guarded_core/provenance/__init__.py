"""Where a value came from: what the user said, and what every tool returned, remembered for a session."""
