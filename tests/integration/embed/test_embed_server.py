"""The real server with the real model, over gRPC."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from undercroft.embed.v1 import (
    embed_pb2,
    embed_service_pb2,
    embed_service_pb2_grpc,
    model_service_pb2,
    model_service_pb2_grpc,
)

from services.core.drift import DRIFTED_BELOW_COSINE
from services.core.grpc import error_reason, open_channel, retry_after_s
from services.embed.preparation import PreparedModel
from tests.integration.embed.conftest import REAL_MODEL, Server

if TYPE_CHECKING:
    from undercroft.embed.v1.embed_service_pb2_grpc import EmbedServiceAsyncStub as Stub

Start = Callable[..., AbstractContextManager[Server]]
QUERY, PASSAGE = embed_pb2.EMBED_TASK_QUERY, embed_pb2.EMBED_TASK_PASSAGE


@pytest.fixture(scope="module")
def server(real_model: Path, start_server: Start) -> Iterator[Server]:
    with start_server(real_model.parent, preload_models=REAL_MODEL, max_texts=256) as running:
        yield running


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(server.target) as opened:
        yield opened


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Stub:
    return embed_service_pb2_grpc.EmbedServiceStub(channel)


def request(
    texts: list[str], model: str = REAL_MODEL, task: embed_pb2.EmbedTask.ValueType = PASSAGE, digest: str = ""
) -> embed_service_pb2.EmbedRequest:
    return embed_service_pb2.EmbedRequest(model=model, texts=texts, task=task, expected_digest=digest)


def rows(response: embed_service_pb2.EmbedResponse) -> npt.NDArray[np.float32]:
    packed = response.vectors
    return np.frombuffer(packed.values, dtype="<f4").reshape(packed.count, packed.dimensions)


def bits(response: embed_service_pb2.EmbedResponse) -> list[bytes]:
    return [row.tobytes() for row in rows(response)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Distinct texts of many lengths: pieces of a module of the standard library."""
    lines = Path(shutil.__file__).read_text(encoding="utf-8").splitlines()
    generator = random.Random(11)
    starts = generator.sample(range(len(lines) - 40), 24)
    return ["\n".join(lines[start : start + generator.randrange(1, 14)]) + f"\n# {start}" for start in starts]


async def test_alone_in_bulk_shuffled_and_among_concurrent_callers_are_bit_identical(
    stub: Stub, texts: list[str]
) -> None:
    alone = {text: bits(await stub.Embed(request([text])))[0] for text in texts}
    assert len(set(alone.values())) == len(texts)
    assert bits(await stub.Embed(request(texts))) == [alone[text] for text in texts]
    generator = random.Random(5)
    orders = [generator.sample(texts, generator.randrange(8, len(texts))) for _ in range(4)]
    answers = await asyncio.gather(*(stub.Embed(request(order)) for order in orders))
    for order, answer in zip(orders, answers, strict=True):
        assert bits(answer) == [alone[text] for text in order]
    # The query lane is another copy of the graph; this model has no prompts, so the bits are the same.
    as_query = await stub.Embed(request(texts[:8], task=QUERY))
    assert bits(as_query) == [alone[text] for text in texts[:8]]


async def test_a_stream_answers_in_order_with_the_same_bits(stub: Stub, texts: list[str]) -> None:
    expected = bits(await stub.Embed(request(texts)))

    async def batches() -> AsyncIterator[embed_service_pb2.EmbedStreamRequest]:
        for start in range(0, len(texts), 7):
            yield embed_service_pb2.EmbedStreamRequest(request=request(texts[start : start + 7]))

    streamed = [row async for answer in stub.EmbedStream(batches()) for row in bits(answer.response)]
    assert streamed == expected


async def test_vectors_mean_something(stub: Stub) -> None:
    passages = [
        "def read_json(path): return json.load(open(path))",
        "SELECT count(*) FROM users",
        "# How to bake bread",
    ]
    vectors = rows(await stub.Embed(request(passages)))
    queries = rows(await stub.Embed(request(["parse a json file", "number of rows in a table", "baking"], task=QUERY)))
    assert (queries @ vectors.T).argmax(axis=1).tolist() == [0, 1, 2]
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_truncation_is_reported_per_text(stub: Stub) -> None:
    long = "word " * 400
    answer = await stub.Embed(request(["short", long, "word " * 254, "word " * 255]))
    assert list(answer.token_counts) == [3, 402, 256, 257]
    assert list(answer.truncated) == [1, 3]
    counted = await stub.CountTokens(embed_service_pb2.CountTokensRequest(model=REAL_MODEL, texts=["short", long]))
    assert (list(counted.token_counts), counted.max_tokens) == ([3, 402], 256)


async def test_info_states_model_limits_and_processor(stub: Stub, real_model: Path) -> None:
    info = await stub.GetInfo(embed_service_pb2.GetInfoRequest())
    manifest = json.loads((real_model / "manifest.json").read_text())
    model = next(model for model in info.models if model.name == REAL_MODEL)
    assert model.digest == manifest["digest"]
    assert (model.dimensions, model.max_tokens, model.pooling, model.quantization) == (384, 256, "mean", "qint8")
    assert model.normalized
    assert (model.engine, model.full_dimensions) == ("openvino", 0)
    assert 0.98 < model.fidelity.min_cosine <= model.fidelity.mean_cosine < 1
    assert model.fidelity.texts > 100
    assert model.loaded
    assert model.refusal == ""
    assert 0.99 <= model.probe_cosine <= 1.001
    assert (info.max_texts, info.max_request_bytes) == (256, 16 * 1024 * 1024)
    assert 1 <= info.threads <= len(os.sched_getaffinity(0))
    assert info.engine.startswith("OpenVINO ")
    assert info.processor


@pytest.mark.parametrize(
    ("model", "code", "reason"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", grpc.StatusCode.INVALID_ARGUMENT, "MODEL_NOT_A_DIRECTORY"),
        ("../all-minilm-l6-v2", grpc.StatusCode.INVALID_ARGUMENT, "MODEL_NOT_A_DIRECTORY"),
        ("/etc", grpc.StatusCode.INVALID_ARGUMENT, "MODEL_NOT_A_DIRECTORY"),
        ("", grpc.StatusCode.INVALID_ARGUMENT, "MODEL_NOT_A_DIRECTORY"),
        ("no-such-model", grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND"),
    ],
)
async def test_an_unknown_model_is_refused_at_once_with_a_remedy(
    stub: Stub, model: str, code: grpc.StatusCode, reason: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Embed(request(["x"], model=model), timeout=5)
    assert raised.value.code() is code
    found, metadata = error_reason(raised.value)
    assert found == reason
    assert metadata["remedy"]


async def test_a_changed_model_is_refused(stub: Stub) -> None:
    good = await stub.Embed(request(["x"]))
    assert bits(await stub.Embed(request(["x"], digest=good.model_digest))) == bits(good)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Embed(request(["x"], digest="0" * 64))
    assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error_reason(raised.value)[0] == "MODEL_CHANGED"


@pytest.mark.parametrize("texts", [[], ["x"] * 257])
async def test_requests_beyond_the_limits_are_refused(stub: Stub, texts: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Embed(request(texts))
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_what_a_later_release_does_says_so(stub: Stub) -> None:
    for call in (
        stub.EmbedTokens(embed_service_pb2.EmbedTokensRequest(model=REAL_MODEL, texts=["x"])),
        stub.ScorePairs(embed_service_pb2.ScorePairsRequest(model=REAL_MODEL, query="x", passages=["y"])),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_deadline_ends_the_call_and_what_it_left_in_the_queue_is_dropped(stub: Stub, texts: list[str]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Embed(request([f"{number} {texts[0]}" for number in range(256)]), timeout=0.15)
    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    # One batch may still be running; the other texts are no longer waited for.
    await asyncio.wait_for(stub.Embed(request(["x"])), 10)
    assert (await stub.GetInfo(embed_service_pb2.GetInfoRequest())).queue_length == 0


async def test_the_server_has_no_children_and_talks_to_nobody(server: Server, stub: Stub) -> None:
    await stub.Embed(request(["x"]))
    process = psutil.Process(server.process.pid)
    assert process.children(recursive=True) == []
    remotes = {connection.raddr.ip for connection in process.net_connections("inet") if connection.raddr}
    assert remotes <= {"127.0.0.1", "::ffff:127.0.0.1"}
    mapped = {os.path.basename(item.path) for item in process.memory_maps()}
    assert not [name for name in mapped if "torch" in name]
    # The weights are read, not mapped: a mapped file that is replaced on a network volume is a SIGBUS.
    assert "openvino_model_qint8.bin" not in mapped


async def test_a_full_queue_is_refused_with_a_time_to_retry(
    quantized_model: PreparedModel, start_server: Start
) -> None:
    with start_server(quantized_model.directory.parent, queue_capacity=64, max_texts=64) as running:
        async with open_channel(running.target) as opened:
            small: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            calls = [small.Embed(request(["x " * 90] * 60, model="tiny")) for _ in range(40)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            refused = [result for result in results if isinstance(result, grpc.aio.AioRpcError)]
            assert refused
            assert len(refused) < len(results)
            for error in refused:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert (retry_after_s(error) or 0) > 0
            # Refusing is no lasting state.
            await small.Embed(request(["x"], model="tiny"))


async def test_a_stream_is_held_back_by_a_full_queue_and_not_refused(
    quantized_model: PreparedModel, start_server: Start
) -> None:
    with start_server(quantized_model.directory.parent, queue_capacity=64, max_texts=64) as running:
        async with open_channel(running.target) as opened:
            small: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            sent = [[f"{stream} {number} " + "x " * 60 for number in range(60)] for stream in range(8)]

            async def streamed(texts: list[str]) -> list[bytes]:
                async def batches() -> AsyncIterator[embed_service_pb2.EmbedStreamRequest]:
                    for _ in range(5):
                        yield embed_service_pb2.EmbedStreamRequest(request=request(texts, model="tiny"))

                return [row async for answer in small.EmbedStream(batches()) for row in bits(answer.response)]

            answers = await asyncio.gather(*map(streamed, sent))
            for texts, vectors in zip(sent, answers, strict=True):
                assert vectors == bits(await small.Embed(request(texts, model="tiny"))) * 5


async def test_a_processor_that_computes_otherwise_has_another_fingerprint_and_is_reported(
    real_model: Path, start_server: Start
) -> None:
    """ONEDNN_MAX_CPU_ISA takes instruction sets away, as an older processor would lack them."""
    states, vectors = [], []
    for isa in ("DEFAULT", "DEFAULT", "AVX"):
        with start_server(real_model.parent, environment={"ONEDNN_MAX_CPU_ISA": isa}, preload_models=REAL_MODEL) as it:
            async with open_channel(it.target) as opened:
                stub: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
                answer = await stub.Embed(request(["open a file"]))
                model = next(m for m in (await stub.GetInfo(embed_service_pb2.GetInfoRequest())).models)
                assert (answer.probe_fingerprint, answer.probe_cosine) == (model.probe_fingerprint, model.probe_cosine)
                drifted = any(str(event["event"]).startswith("this processor's vectors differ") for event in it.events)
                assert drifted == (model.probe_cosine < DRIFTED_BELOW_COSINE)
                states.append(model)
                vectors.append(bits(answer))
    one, same, other = states
    assert len(one.probe_fingerprint) == 64
    assert (one.probe_fingerprint, vectors[0]) == (same.probe_fingerprint, vectors[1])
    assert (one.probe_fingerprint, vectors[0]) != (other.probe_fingerprint, vectors[2])
    assert one.digest == other.digest
    assert 0.99 < other.probe_cosine < 1


async def test_memory_stays_flat_once_every_shape_was_seen(quantized_model: PreparedModel, start_server: Start) -> None:
    generator = random.Random(3)

    async def embed_some(stub: Stub, texts: int) -> None:
        for _ in range(texts // 250):
            chosen = ["x " * generator.randrange(1, 100) for _ in range(250)]
            await asyncio.gather(*(stub.Embed(request(chosen[part::5], model="tiny")) for part in range(5)))

    with start_server(quantized_model.directory.parent) as running:
        process = psutil.Process(running.process.pid)
        async with open_channel(running.target) as opened:
            stub: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            await embed_some(stub, 5000)
            before = process.memory_info().rss
            await embed_some(stub, 10_000)
            assert process.memory_info().rss - before < 4 * 2**20


async def test_models_are_checked_unloaded_and_replaced_while_the_server_runs(
    quantized_model: PreparedModel, tiny_model: PreparedModel, tmp_path: Path, start_server: Start
) -> None:
    models = tmp_path / "models"
    shutil.copytree(quantized_model.directory, models / "tiny")
    shutil.copytree(tiny_model.directory, models / "broken")
    weights = models / "broken" / "openvino_model_float32.bin"
    weights.write_bytes(weights.read_bytes()[:-4])
    with start_server(models) as running:
        assert any(event["event"] == "model not preloaded" for event in running.events)
        async with open_channel(running.target) as opened:
            embed: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            manage = model_service_pb2_grpc.ModelServiceStub(opened)
            broken = await manage.VerifyModel(model_service_pb2.VerifyModelRequest(name="broken"))
            assert "openvino_model_float32.bin is damaged" in broken.refusal
            get_broken = model_service_pb2.GetModelRequest(name="broken")
            assert (await manage.GetModel(get_broken)).refusal == broken.refusal
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await embed.Embed(request(["x"], model="broken"))
            assert error_reason(raised.value)[0] == "MODEL_FILE_DAMAGED"
            shutil.copyfile(tiny_model.directory / weights.name, weights)
            repaired = await manage.VerifyModel(model_service_pb2.VerifyModelRequest(name="broken"))
            assert repaired.refusal == ""
            assert repaired.probe_cosine > 0.999
            assert (await manage.GetModel(get_broken)).refusal == ""
            assert (await embed.Embed(request(["x"], model="broken"))).vectors.count == 1

            # Damage that no size shows is known from the verify that found it, and gone with the files that had it.
            content = bytearray(weights.read_bytes())
            content[len(content) // 2] ^= 1
            weights.unlink()
            weights.write_bytes(content)
            assert (await manage.VerifyModel(model_service_pb2.VerifyModelRequest(name="broken"))).refusal
            state = await manage.GetModel(get_broken)
            assert state.loaded
            assert "is damaged" in state.refusal
            shutil.copyfile(tiny_model.directory / weights.name, weights)
            assert (await manage.GetModel(get_broken)).refusal == ""

            first = await embed.Embed(request(["x"], model="tiny"))
            assert first.model_digest == quantized_model.manifest.digest
            await manage.UnloadModel(model_service_pb2.UnloadModelRequest(name="tiny"))
            assert not (await manage.GetModel(model_service_pb2.GetModelRequest(name="tiny"))).loaded
            assert bits(await embed.Embed(request(["x"], model="tiny"))) == bits(first)

            (models / "tiny").rename(tmp_path / "old")
            shutil.copytree(tiny_model.directory, models / "tiny")
            listed = await manage.GetModel(model_service_pb2.GetModelRequest(name="tiny"))
            assert (listed.digest, listed.loaded) == (tiny_model.manifest.digest, False)
            replaced = await embed.Embed(request(["x"], model="tiny"))
            assert replaced.model_digest == tiny_model.manifest.digest


async def test_a_models_directory_may_be_read_only_and_is_never_written(
    quantized_model: PreparedModel, tmp_path: Path, start_server: Start
) -> None:
    models = tmp_path / "models"
    shutil.copytree(quantized_model.directory, models / "tiny")
    before = {path: path.stat().st_mtime_ns for path in [models, *models.rglob("*")]}
    for path in before:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with start_server(models) as running:
            async with open_channel(running.target) as opened:
                await embed_service_pb2_grpc.EmbedServiceStub(opened).Embed(request(["x"], model="tiny"))
        assert {path: path.stat().st_mtime_ns for path in [models, *models.rglob("*")]} == before
    finally:
        for path in before:
            path.chmod(0o755)


async def test_an_empty_models_directory_serves_and_says_so(tmp_path: Path, start_server: Start) -> None:
    with start_server(tmp_path) as running:
        async with open_channel(running.target) as opened:
            stub: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            assert list((await stub.GetInfo(embed_service_pb2.GetInfoRequest())).models) == []
            health = health_pb2_grpc.HealthStub(opened)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="undercroft.embed.v1.EmbedService"))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(20) == 0


async def test_a_stream_answers_a_client_that_waits_for_each_answer(stub: Stub) -> None:
    call = stub.EmbedStream()
    for number in range(4):
        await call.write(embed_service_pb2.EmbedStreamRequest(request=request([f"text {number}"])))
        answer = await asyncio.wait_for(call.read(), 20)
        assert answer.response.vectors.count == 1
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF


def _odd_directories(models: Path, healthy: Path) -> set[str]:
    """Make model directories that no admin would want, each with another fault."""

    def change(name: str, file: str, content: bytes | None = None, **values: object) -> None:
        shutil.copytree(healthy, models / name)
        path = models / name / file
        if content is None:
            document = json.loads(path.read_text())
            for key, value in values.items():
                place = document
                *above, last = key.split("__")
                for part in above:
                    place = place[part]
                place[last] = value
            content = json.dumps(document).encode()
        path.unlink()
        path.write_bytes(content)

    change("not-utf8", "manifest.json", b"\xff\xfe")
    change("deep", "manifest.json", b"[" * 200_000)
    change("list", "manifest.json", b"[]")
    change("infinite", "manifest.json", b'{"format": Infinity}')
    change("surrogate", "manifest.json", digest="\ud800")
    change("huge-number", "manifest.json", fidelity__texts=2**31)
    manifest = json.loads((healthy / "manifest.json").read_text())
    packed = manifest["probes"][0]["vector_float32_le_base64"]
    nan = np.full(len(base64.b64decode(packed)) // 4, np.nan, dtype="<f4").tobytes()
    manifest["probes"][0]["vector_float32_le_base64"] = base64.b64encode(nan).decode()
    change("no-direction", "manifest.json", json.dumps(manifest).encode())
    change("recipe-not-utf8", "recipe.json", b"\xff")
    change("recipe-huge", "recipe.json", max_length_tokens=2**40)
    change("recipe-pad", "recipe.json", pad_token_id=-1)
    change("pipe", "recipe.json", b"{}")
    (models / "pipe" / "recipe.json").unlink()
    os.mkfifo(models / "pipe" / "recipe.json")
    return {path.name for path in models.iterdir()}


async def test_damaged_directories_are_refused_in_words_and_cost_the_others_nothing(
    tiny_model: PreparedModel, tmp_path: Path, start_server: Start
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    odd = _odd_directories(models, tiny_model.directory)
    shutil.copytree(tiny_model.directory, models / "tiny")
    with start_server(models) as running:
        async with open_channel(running.target) as opened:
            embed: Stub = embed_service_pb2_grpc.EmbedServiceStub(opened)
            manage = model_service_pb2_grpc.ModelServiceStub(opened)
            for _ in range(2):
                info = await embed.GetInfo(embed_service_pb2.GetInfoRequest(), timeout=20)
                assert {model.name for model in info.models} == {*odd, "tiny"}
                assert {model.name for model in info.models if model.refusal} >= odd - {"no-direction"}
            for name in sorted(odd):
                verified = await manage.VerifyModel(model_service_pb2.VerifyModelRequest(name=name), timeout=20)
                assert verified.refusal, name
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await embed.Embed(request(["x"], model=name), timeout=20)
                reason, metadata = error_reason(raised.value)
                assert reason not in {"INTERNAL", ""}, name
                assert metadata["remedy"], name
            assert (await embed.Embed(request(["x"], model="tiny"), timeout=20)).vectors.count == 1
            # A directory that is gone can be taken out of memory.
            shutil.rmtree(models / "tiny")
            await manage.UnloadModel(model_service_pb2.UnloadModelRequest(name="tiny"), timeout=20)
