"""The one way that a call takes: judged, asked about, committed, run, settled."""
