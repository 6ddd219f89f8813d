"""sentence-transformers' OpenVINO back end on the service's int8 weights; run by a Python with the models extra.

    python ops/bench/embed_rival.py MODEL_DIRECTORY < requests

Each line of standard input is {"texts": [...], "batch_size": n}; each answer is {"seconds": wall, "cpu_s": processor}.
The first line it prints is {"ready": seconds since the start}.
"""

from __future__ import annotations

import json
import sys
import time

STARTED = time.perf_counter()


def main() -> None:
    from sentence_transformers import SentenceTransformer

    import services.embed  # noqa: F401  (blocks telemetry before openvino is imported)

    options = {
        "file_name": "openvino_model_qint8.xml",
        "export": False,
        "ov_config": {"INFERENCE_PRECISION_HINT": "f32", "ENABLE_CPU_PINNING": False},
    }
    model = SentenceTransformer(sys.argv[1], backend="openvino", device="cpu", model_kwargs=options)
    vector = model.encode(["first answer"])
    assert vector.shape[0] == 1
    print(json.dumps({"ready": time.perf_counter() - STARTED}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        cpu, wall = time.process_time(), time.perf_counter()
        model.encode(request["texts"], batch_size=request["batch_size"], show_progress_bar=False)
        answer = {"seconds": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
