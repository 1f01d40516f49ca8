"""JSON Schema of a tool's arguments: lint at registration, close, compile, complete, narrow.

In the order a schema meets them: `lint` refuses what cannot be judged safely, `close` makes the copy that admits
declared properties only, `Validator` judges every call on it, `complete` fills in the effective arguments, and `narrow`
makes the copy a model is shown. `from_params` writes the schema of an AiTool's parameters.
"""

from __future__ import annotations

from guarded_core.tools.schema.closing import close
from guarded_core.tools.schema.defaults import Defaults, complete
from guarded_core.tools.schema.linting import lint, validators
from guarded_core.tools.schema.narrowing import narrow
from guarded_core.tools.schema.parameters import from_params
from guarded_core.tools.schema.validation import Validator

__all__ = ["Defaults", "Validator", "close", "complete", "from_params", "lint", "narrow", "validators"]
