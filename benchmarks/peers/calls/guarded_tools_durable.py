"""The same with the chained trail in a file, each of a call's two records synced to the disk."""

from benchmarks.peers.calls.guarded_tools import calling


def make(folder, arguments):
    from guarded_core.audit.durable import DurableToolAuditTrail

    return calling(DurableToolAuditTrail.open(f"{folder}/audit.log", auto_rotate=True), arguments)
