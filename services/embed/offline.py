"""Shut every door to the outside before a library that has one is imported.

Importing openvino or nncf otherwise forks a child that looks up an analytics host; Python's own sockets never see it,
and no offline flag of the hub libraries stops it. Hub libraries in turn reach out for a file that a local directory
lacks. Both are switched off at the source, by the package's own ``__init__``, so that no module can forget it.
"""

from __future__ import annotations

import os
import sys

_TELEMETRY_MODULE = "openvino_telemetry"
_GUARDED_IMPORTS = ("openvino", "nncf", "optimum")
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "DO_NOT_TRACK": "1",
    # The engine hands tokenizers one batch at a time from its own threads; a second pool would only fight over cores,
    # and a fork after its use prints warnings.
    "TOKENIZERS_PARALLELISM": "false",
}


def enforce_offline() -> None:
    """Set the offline switches of this process and of its children, and block the telemetry module.

    Raises ``RuntimeError`` when a library that this must precede has already been imported with telemetry in place.
    """
    os.environ.update(_ENVIRONMENT)
    if sys.modules.get(_TELEMETRY_MODULE) is not None:
        early = [name for name in _GUARDED_IMPORTS if name in sys.modules]
        raise RuntimeError(
            f"{_TELEMETRY_MODULE} was imported before services.embed ({', '.join(early) or 'directly'}). "
            "Import services.embed first: it blocks the module that looks up an analytics host."
        )
    # ``None`` is the documented way to make an import fail; openvino and nncf then take their own no-telemetry path.
    sys.modules[_TELEMETRY_MODULE] = None  # type: ignore[assignment]
