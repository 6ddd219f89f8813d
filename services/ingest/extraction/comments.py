"""What a documentation comment says first, whatever marks a language puts around it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.ingest.extraction.definitions import shortened

_MARK = re.compile(r"^\s*(?:/\*+!?<?|\*+(?!\*)|//+[!<]*|#+!?:?|--+|;+|\"\"\"|'''|=begin\b|=end\b)\s?")
_END = re.compile(r"\s*(?:\*+/|\"\"\"|''')\s*$")
_TAG = re.compile(r"<[^<>]{1,80}>|\{@\w+\s+([^{}]*)\}|[@\\](?:brief|summary|details|description)\b\s*:?")
_SENTENCE = re.compile(r"(.+?[.!?。！？])(?=\s|$|(?<=[。！？]))")
_STOP = re.compile(r"\s*(?:[@\\](?!brief|summary|details|description)\w+|Example:|Args:|Parameters:|Returns:)")
_LEGAL = re.compile(
    r"copyright|licen[sc]e|spdx|all rights reserved|eslint|tslint|jshint|prettier|@flow|@ts-|rubocop|shellcheck|nolint|"
    r"frozen_string_literal|coding:|-\*-|vim:",
    re.IGNORECASE,
)
_MOST_LINES = 40


def first_sentence(lines: Sequence[str]) -> str:
    """Return the first sentence of a comment, on one line, without its marks; at most 400 characters."""
    words: list[str] = []
    for line in lines[:_MOST_LINES]:
        text = _END.sub("", _MARK.sub("", line[:2000]))
        if _STOP.match(text):
            break
        text = _TAG.sub(lambda match: match[1] or "", text).strip()
        if not any(character.isalnum() for character in text):
            if words:
                break
            continue
        words.append(text)
        if _SENTENCE.match(text):
            break
    joined = " ".join(" ".join(words).split())
    sentence = _SENTENCE.match(joined)
    return shortened(sentence[1] if sentence else joined)


def is_legal(lines: Sequence[str]) -> bool:
    """Tell a licence, or a line for tools, from documentation."""
    return any(_LEGAL.search(line[:2000]) for line in lines[:_MOST_LINES])
