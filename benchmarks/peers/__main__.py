"""Prints the table of peers: ``python -m benchmarks.peers``."""

from benchmarks.peers import run

for section in run():
    print(section.markdown())
