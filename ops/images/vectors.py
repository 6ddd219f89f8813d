"""Compare the vectors of two embed services bit by bit: ``python -m ops.images.vectors MODEL TARGET TARGET``.

One has all of OpenVINO's wheel, the other what the image keeps of it.
"""

from __future__ import annotations

import json
import sys
from importlib import resources

from undercroft.client import Client
from undercroft.embed.v1 import embed_service_pb2


def vectors_of(target: str, model: str, texts: list[str]) -> list[bytes]:
    """Return the vectors of texts as a service sends them, the bytes of each."""
    with Client(embed=target) as client:
        response = client.embed.Embed(embed_service_pb2.EmbedRequest(model=model, texts=texts), timeout=300)
    data, size_bytes = response.vectors.values, 4 * response.vectors.dimensions
    return [data[start : start + size_bytes] for start in range(0, len(data), size_bytes)]


def main() -> None:
    model, first, second = sys.argv[1:]
    lines = (resources.files("services.embed.preparation.texts") / "holdout.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    ours, theirs = vectors_of(first, model, texts), vectors_of(second, model, texts)
    if not ours or len(ours) != len(texts):
        sys.exit(f"{len(ours)} vectors for {len(texts)} texts")
    if differing := sum(a != b for a, b in zip(ours, theirs, strict=True)):
        sys.exit(f"{differing} of {len(texts)} vectors differ")
    print(f"{len(texts)} vectors are the same to the bit")


if __name__ == "__main__":
    main()
