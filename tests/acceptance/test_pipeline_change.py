"""G10: a changed pipeline renews every chunk and embeds only new texts; what changes no vector costs nothing."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path

import pytest

from tests.support.appliance import Appliance, install_model, undercroft

FILES = 8


def restart_ingest(appliance: Appliance) -> None:
    """Have the service read its pipeline anew."""
    appliance.kill("ingest")
    time.sleep(0.2)
    appliance.wait_serving("ingest")


@pytest.mark.timeout(300)
def test_pipeline_bytes_renew_chunks_and_settings_do_not(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "code"
    folder.mkdir()
    for number in range(FILES):
        body = "\n".join(f"    total += value * {line}" for line in range(60))
        (folder / f"long_{number}.py").write_text(
            f'def long_{number}(value):\n    """Add {number}."""\n    total = {number}\n{body}\n    return total\n'
        )
    pipeline = tmp_path / "ingestion.yaml"
    text = resources.files("services.ingest").joinpath("ingestion.yaml").read_text()
    pipeline.write_text(text)
    install_model(home)
    settings = {"UNDERCROFT_PIPELINE_FILE": str(pipeline)}
    undercroft("up", home=home, settings=settings)
    try:
        appliance = Appliance(home)
        appliance.create_project("renewed", [folder])
        first = appliance.index("renewed")
        chunks = first.chunks.added
        assert first.renewal_reason == ""
        answers = [(hit.chunk_key, hit.score) for hit in appliance.search("long_3", "renewed").hits]

        # How much is embedded at a time is no part of what a vector is.
        appliance.client.close()
        undercroft("down", home=home)
        settings |= {"UNDERCROFT_EMBED_BATCH_TEXTS": "3", "UNDERCROFT_EXTRACTION_WORKERS": "1"}
        undercroft("up", home=home, settings=settings)
        appliance = Appliance(home)
        same = appliance.index("renewed")
        assert (same.published, same.files.read, same.renewal_reason) == (False, 0, "")

        # A comment says nothing new: every chunk is renewed, and no text is.
        pipeline.write_text(text + "# another byte\n")
        restart_ingest(appliance)
        renewed = appliance.index("renewed")
        assert "ingestion.yaml" in renewed.renewal_reason
        assert (renewed.chunks.added, renewed.chunks.removed, renewed.chunks.kept) == (chunks, chunks, 0)
        assert (renewed.embeddings.embedded, renewed.files.unchanged) == (0, FILES)
        assert [(hit.chunk_key, hit.score) for hit in appliance.search("long_3", "renewed").hits] == answers

        # Smaller chunks are other texts, which are embedded; a start of a file that fits as before is not among them.
        pipeline.write_text(text.replace("budget_tokens: 0", "budget_tokens: 100"))
        restart_ingest(appliance)
        smaller = appliance.index("renewed")
        assert smaller.chunks.added > chunks
        assert 0 < smaller.embeddings.embedded <= smaller.embeddings.texts

        # And back: the cache has them all.
        pipeline.write_text(text)
        restart_ingest(appliance)
        back = appliance.index("renewed")
        assert (back.published, back.embeddings.embedded, back.chunks.added) == (True, 0, chunks)
    finally:
        undercroft("down", home=home)
