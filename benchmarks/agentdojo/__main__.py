"""`python -m benchmarks.agentdojo`: replay AgentDojo through the guard."""

from benchmarks.agentdojo.cli import main

main()
