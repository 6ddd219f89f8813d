"""A tokenizer that numbers its tokens otherwise than its model gives wrong vectors, and no error anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

from services.core.errors import InvalidArgument
from services.embed.directory import read_document, read_text
from services.embed.manifest import TOKENIZER_NAME

_PLAIN = "vocab.txt"
_NUMBERED = "vocab.json"


def check_vocabulary(directory: Path) -> None:
    """Compare tokenizer.json with the list of tokens that older libraries read, where a model has both.

    Raises ``InvalidArgument`` when a token of the list has another id, or none.
    """
    for name, read in ((_PLAIN, _read_plain), (_NUMBERED, read_document)):
        if not (directory / name).is_file():
            continue
        tokenizer = read_document(directory / TOKENIZER_NAME)
        model, added = tokenizer.get("model"), tokenizer.get("added_tokens")
        vocabulary = model.get("vocab") if isinstance(model, dict) else None
        # The kinds that number tokens by their place in a list have no such file.
        if not isinstance(vocabulary, dict):
            continue
        others = {one.get("content"): one.get("id") for one in added} if _are_objects(added) else {}
        listed = read(directory / name)
        moved = [token for token, number in listed.items() if number not in (vocabulary.get(token), others.get(token))]
        if moved:
            raise InvalidArgument(
                f"{directory / TOKENIZER_NAME} numbers {len(moved)} of {len(listed)} tokens otherwise than {name},"
                f" {moved[0][:40]!r} for one: they belong to different models.",
                remedy="Copy the whole model directory again.",
                reason="MODEL_TOKENIZER_FOREIGN",
            )


def _are_objects(value: object) -> TypeGuard[list[dict[str, object]]]:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def _read_plain(path: Path) -> Mapping[str, object]:
    """Read one token a line, numbered from 0 on; of a token that is listed twice, the last place counts."""
    try:
        lines = read_text(path).replace("\r\n", "\n").split("\n")
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}.", remedy="Copy the model directory again.") from error
    return {token: number for number, token in enumerate(lines) if token}
