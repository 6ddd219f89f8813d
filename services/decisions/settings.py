"""Settings of the decisions service."""

from __future__ import annotations

from pydantic import Field

from services.core.settings import Target
from services.core.store_settings import StoreSettings


class DecisionsSettings(StoreSettings):
    """What the decisions service is told."""

    search_target: Target = Field("", description="host:port of the search service; empty: no questions in free text")
