from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.ingest.discovery import DiscoverySettings, Found, discover
from services.ingest.media import TRANSCRIPT_SUFFIXES, is_medium, medium_of, transcript_hint
from services.ingest.skips import Skipped
from tests.support.chunks import outline, taken


@pytest.mark.parametrize(
    ("path", "medium"),
    [
        ("talks/talk.mp4.md", "talk.mp4"),
        ("talk.MP4.TXT", "talk.MP4"),
        ("plan.png.rst", "plan.png"),
        ("a.b.wav.vtt", "a.b.wav"),
        ("talk.transcript.md", "talk"),
        ("talk.mp4.transcript.srt", "talk.mp4"),
        ("talk.md", ""),
        ("mp4.md", ""),
        (".mp4.md", ""),
        ("talk.mp4.py", ""),
        ("talk.py.md", ""),
    ],
)
def test_a_transcript_is_known_by_its_name(path: str, medium: str) -> None:
    assert medium_of(path) == medium


def test_titles_name_the_medium() -> None:
    assert outline(taken("# Owls\n\nQuiet.\n\n## Food\n\nMice.\n", "talks/talk.mp4.md").extraction) == [
        ("talk.mp4 (transcript) > Owls", 1, 3),
        ("talk.mp4 (transcript) > Owls > Food", 5, 7),
    ]
    assert outline(taken("Quiet birds.\n", "talks/talk.mp4.txt").extraction) == [
        ("talks > talk.mp4 (transcript)", 1, 1)
    ]
    captions = "WEBVTT\n\n00:01.000 --> 00:02.500\nQuiet birds.\n"
    assert [title for title, _, _ in outline(taken(captions, "talk.mp4.vtt").extraction)] == [
        "talk.mp4 (transcript)",
        "talk.mp4 (transcript) > 00:00:01–00:00:02",
    ]
    assert outline(taken("Quiet birds.\n", "talk.txt").extraction) == [("talk.txt", 1, 1)]


@pytest.mark.parametrize(
    ("neighbours", "told"),
    [
        (["talk.mp4", "talk.mp4.md"], "talk.mp4.md beside it is indexed"),
        (["talk.mp4", "talk.srt"], "talk.srt beside it is indexed"),
        (["talk.mp4", "talk.en.VTT", "talk.de.vtt"], "talk.de.vtt beside it is indexed"),
        (["talk.mp4", "talk.txt", "talks.srt"], "to have it found, put a transcript beside it as talk.mp4.md"),
    ],
)
def test_the_text_beside_a_medium_is_told(neighbours: list[str], told: str) -> None:
    assert transcript_hint("talk.mp4", neighbours) == told


@settings(deadline=None)
@given(
    st.text(st.sampled_from("ab 図é-"), min_size=1, max_size=60),
    st.sampled_from(TRANSCRIPT_SUFFIXES),
    st.text(st.sampled_from("# ab\n:->0.1,"), max_size=400),
    st.sampled_from([32, 40, 64, 254]),
)
def test_a_longer_title_still_fits_the_budget(stem: str, suffix: str, text: str, tokens: int) -> None:
    taken(text, f"{stem}.mp4{suffix}", tokens=tokens)


def test_media_say_where_their_transcript_is_or_how_to_add_one(tmp_path: Path) -> None:
    for name in ("talk.mp4", "talk.mp4.vtt", "old.wav", "old.transcript.txt", "plan.png", "data.zip"):
        (tmp_path / name).write_bytes(b"x")
    entries = list(discover(tmp_path, DiscoverySettings()))
    assert [entry.path for entry in entries if isinstance(entry, Found)] == ["old.transcript.txt", "talk.mp4.vtt"]
    assert {entry.path: entry.detail for entry in entries if isinstance(entry, Skipped)} == {
        "talk.mp4": ".mp4 is a binary format; talk.mp4.vtt beside it is indexed",
        "old.wav": ".wav is a binary format; old.transcript.txt beside it is indexed",
        "plan.png": ".png is a binary format; to have it found, put a transcript beside it as plan.png.md",
        "data.zip": ".zip is a binary format",
    }


@given(st.text(max_size=30))
def test_any_name_is_judged(name: str) -> None:
    assert not (is_medium(name) and medium_of(name))
