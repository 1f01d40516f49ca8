"""For the tests of applications: fakes of what a guard talks to, and policies tried without any tool.

`trial` (cases and explanations of a policy) loads pydantic, so it is imported by its own name.
"""

from guarded_core.testing.fakes import FailingSink, RecordingSink, ScriptedApprover

__all__ = ["FailingSink", "RecordingSink", "ScriptedApprover"]
