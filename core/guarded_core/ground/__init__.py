"""The ground floor: what everything else stands on, and what imports nothing of ours from above it."""
