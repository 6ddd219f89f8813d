"""Pictures, sound and video by their names, and the texts that people put beside them.

Media are never read, and no text is ever made of them or changed: ``talk.mp4.md`` is a file of its own, indexed as the
Markdown that it is, whose titles say which medium it is the transcript of.
"""

from __future__ import annotations

from collections.abc import Collection

_PICTURES = "png jpg jpeg gif bmp tif tiff webp avif heic psd ai eps sketch fig xcf"
_SOUND = "mp3 m4a wav flac ogg oga opus aac wma"
_VIDEO = "mp4 m4v ogv avi mov mkv mpg mpeg webm wmv"
MEDIA_SUFFIXES = frozenset(f"{_PICTURES} {_SOUND} {_VIDEO}".split(" "))
_CAPTION_SUFFIXES = (".vtt", ".srt", ".sbv")
TRANSCRIPT_SUFFIXES = (".md", ".markdown", ".txt", ".rst", *_CAPTION_SUFFIXES)
_WORD = ".transcript"


def is_medium(name: str) -> bool:
    """Whether a file of this name is a picture, sound or video."""
    stem, dot, suffix = name.rpartition(".")
    return bool(dot and stem) and suffix.lower() in MEDIA_SUFFIXES


def medium_of(path: str) -> str:
    """Name the medium that a file is the transcript of, by its own name; "" where it is none.

    ``talk.mp4.md`` is that of ``talk.mp4``, ``talk.transcript.md`` that of ``talk``.
    """
    stem, _, suffix = path.rpartition("/")[2].rpartition(".")
    if f".{suffix.lower()}" not in TRANSCRIPT_SUFFIXES:
        return ""
    if is_medium(stem):
        return stem
    return stem[: -len(_WORD)] if stem.lower().endswith(_WORD) else ""


def transcript_hint(name: str, neighbours: Collection[str]) -> str:
    """Say where the transcript of a medium is among the files beside it, or how to add one."""
    stem = name.rpartition(".")[0]
    names = [f"{base}{suffix}" for base in (name, stem + _WORD) for suffix in TRANSCRIPT_SUFFIXES]
    found = next((one for one in names if one in neighbours), None) or next(
        # As players look for them: talk.srt, talk.en.vtt.
        (one for one in sorted(neighbours) if one.startswith(f"{stem}.") and one.lower().endswith(_CAPTION_SUFFIXES)),
        None,
    )
    return f"{found} beside it is indexed" if found else f"to have it found, put a transcript beside it as {names[0]}"
