"""A server behind all interceptors: keys, errors, deadlines, health, streams, limits."""

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from nianlun.common.v1 import common_pb2
from nianlun.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from nianlun.memory.v1 import memory_pb2, memory_pb2_grpc
from services.common import context, deadlines, errors
from services.common.auth import admin
from services.common.grpc.client import channel, service_call, stream
from services.common.grpc.health import Readiness
from services.common.settings import ChassisSettings
from services.common.telemetry import Telemetry
from tests.integration.common.conftest import Serve, ServerSettings, until
from tests.support import keys

Code = grpc.StatusCode
GET = memory_pb2.GetJobRequest(job_id="j")


async def _get_job(request, ctx):
    return memory_pb2.GetJobResponse(job=common_pb2.Job(job_id=request.job_id))


def _stub(running) -> memory_pb2_grpc.MemoryServiceStub:
    return memory_pb2_grpc.MemoryServiceStub(running.channel())


async def _failure(call) -> tuple[Code, error_details_pb2.ErrorInfo, dict[str, object], str]:
    """Code, the one ErrorInfo, other details by name, and the message of a failed call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    assert status is not None, caught.value
    infos, others = [], {}
    for packed in status.details:
        name = packed.TypeName().rpartition(".")[2]
        message = getattr(error_details_pb2, name)()
        packed.Unpack(message)
        if name == "ErrorInfo":
            infos.append(message)
        else:
            others[name] = message
    assert len(infos) == 1
    assert infos[0].domain == "nianlun.io"
    return caught.value.code(), infos[0], others, status.message


@pytest.fixture
def tenant(chassis_db):
    return chassis_db.tenant()


# --- I8: keys -----------------------------------------------------------------------------------


async def test_i08_without_a_good_key_nothing_is_learned(chassis_db, serve: Serve, tenant):
    called = []

    async def handler(request, ctx):
        called.append(request)
        return await _get_job(request, ctx)

    running = await serve(GetJob=handler)
    revoked = chassis_db.tenant()
    keys.revoke(chassis_db.owner_dsn, revoked.key)
    expired = chassis_db.tenant(expires_in_s=-1)
    bad = {
        "none": (),
        "unknown": (("authorization", f"Bearer {keys.random_key()}"),),
        "malformed": (("authorization", "Bearer x"),),
        "scheme": (("authorization", f"Basic {tenant.key}"),),
        "twice": (("authorization", f"Bearer {keys.random_key()}"), *tenant.metadata),
        "revoked": revoked.metadata,
        "expired": expired.metadata,
    }
    seen = set()
    for metadata in bad.values():
        code, info, others, message = await _failure(_stub(running).GetJob(GET, metadata=metadata))
        seen.add((code, info.reason, message, len(others), len(info.metadata)))
    assert seen == {(Code.UNAUTHENTICATED, "UNAUTHENTICATED", "A valid key is required.", 0, 0)}
    assert called == []
    await _stub(running).GetJob(GET, metadata=tenant.metadata)
    assert len(called) == 1


async def test_a_revocation_is_seen_within_the_cache_time(chassis_db, serve: Serve, tenant):
    settings = ServerSettings(chassis=ChassisSettings(drain_s=0, grace_s=1, auth_cache_s=0.3))
    running = await serve(settings, GetJob=_get_job)
    await _stub(running).GetJob(GET, metadata=tenant.metadata)
    [key] = admin.list_keys(chassis_db.owner_dsn, tenant.tenant_id)
    admin.revoke_key(chassis_db.owner_dsn, key.key_id)
    await asyncio.sleep(0.4)
    code, *_ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert code is Code.UNAUTHENTICATED


async def test_scopes_follow_the_contract(chassis_db, serve: Serve):
    async def cancel(request, ctx):
        return memory_pb2.CancelJobResponse()

    running = await serve(GetJob=_get_job, CancelJob=cancel)
    reader = chassis_db.tenant(scopes=("read",))
    writer = chassis_db.tenant(scopes=("write",))
    stub, request = _stub(running), memory_pb2.CancelJobRequest(job_id="j", request_id="r")
    await stub.GetJob(GET, metadata=reader.metadata)
    await stub.CancelJob(request, metadata=writer.metadata)
    code, info, *_ = await _failure(stub.CancelJob(request, metadata=reader.metadata))
    assert (code, info.reason) == (Code.PERMISSION_DENIED, "PERMISSION_DENIED")
    assert dict(info.metadata) == {"scope": "write"}
    code, info, *_ = await _failure(stub.GetJob(GET, metadata=writer.metadata))
    assert dict(info.metadata) == {"scope": "read"}


async def test_a_service_key_acts_for_the_tenant_named(chassis_db, serve: Serve, tenant):
    seen = []

    async def handler(request, ctx):
        seen.append(context.current_caller().tenant_id)
        return await _get_job(request, ctx)

    running = await serve(GetJob=handler)
    service_key = admin.create_service_key(chassis_db.owner_dsn).key
    async with channel(running.target) as ours:
        stub = memory_pb2_grpc.MemoryServiceStub(ours)
        for name in (tenant.tenant_id, "租户 a\\b"):
            with service_call(name, service_key):
                await stub.GetJob(GET)
    assert seen == [tenant.tenant_id, "租户 a\\b"]

    bearer = ("authorization", f"Bearer {service_key}")
    code, *_ = await _failure(_stub(running).GetJob(GET, metadata=(bearer,)))
    assert code is Code.PERMISSION_DENIED
    foreign = (*tenant.metadata, ("x-nianlun-tenant", "somebody-else"))
    code, info, *_ = await _failure(_stub(running).GetJob(GET, metadata=foreign))
    assert (code, dict(info.metadata)) == (Code.PERMISSION_DENIED, {"scope": "service"})


# --- errors -------------------------------------------------------------------------------------


async def test_domain_errors_carry_their_details(serve: Serve, tenant):
    async def handler(request, ctx):
        raise errors.not_found("job", request.job_id)

    running = await serve(GetJob=handler)
    code, info, others, _ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert (code, info.reason) == (Code.NOT_FOUND, "NOT_FOUND")
    assert others["ResourceInfo"].resource_name == "j"


async def test_exception_texts_stay_inside(serve: Serve, tenant):
    async def handler(request, ctx):
        raise ValueError("the user's secret " * 5000)

    running = await serve(GetJob=handler)
    code, info, _, message = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert (code, info.reason) == (Code.INTERNAL, "INTERNAL")
    assert "secret" not in message


async def test_g02_a_cancelled_inner_task_is_internal_at_once(serve: Serve, tenant):
    async def unary(request, ctx):
        inner = asyncio.create_task(asyncio.sleep(30))
        inner.cancel()
        await inner

    async def streaming(request, ctx):
        yield memory_pb2.WatchJobResponse()
        inner = asyncio.create_task(asyncio.sleep(30))
        inner.cancel()
        await inner

    running = await serve(GetJob=unary, WatchJob=streaming)
    code, *_ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata, timeout=60))
    assert code is Code.INTERNAL
    call = _stub(running).WatchJob(
        memory_pb2.WatchJobRequest(job_id="j"), metadata=tenant.metadata, timeout=60
    )

    async def read() -> None:
        async for _ in call:
            pass

    # A call that hung would end with its deadline.
    code, *_ = await _failure(read())
    assert code is Code.INTERNAL


async def test_request_ids_are_kept_made_and_returned(serve: Serve, tenant):
    seen = []

    async def handler(request, ctx):
        seen.append(context.current().request_id)
        return await _get_job(request, ctx)

    running = await serve(GetJob=handler)
    stub = _stub(running)
    for given in ("abc-123", "bad id <script>"):
        call = stub.GetJob(GET, metadata=(*tenant.metadata, ("x-request-id", given)))
        await call
        assert dict(await call.trailing_metadata())["x-request-id"] == seen[-1]
    assert seen[0] == "abc-123"
    assert len(seen[1]) == 32


# --- G1: deadlines ------------------------------------------------------------------------------


async def test_g01_the_deadline_goes_through_two_hops_and_all_stop(serve: Serve, tenant):
    left: dict[str, float] = {}
    stopped: list[str] = []

    async def embed(request, ctx):
        left["embedder"] = deadlines.remaining(99)
        try:
            await asyncio.sleep(600)
        finally:
            stopped.append("embedder")

    last = await serve(Embed=embed)
    to_last = channel(last.target)

    async def middle_handler(request, ctx):
        left["memory"] = deadlines.remaining(99)
        try:
            await asyncio.sleep(0.2)
            await embedder_pb2_grpc.EmbedderServiceStub(to_last).Embed(embedder_pb2.EmbedRequest())
        finally:
            stopped.append("memory")

    middle = await serve(GetJob=middle_handler)
    to_middle = channel(middle.target)

    async def first_handler(request, ctx):
        left["first"] = deadlines.remaining(99)
        stub = memory_pb2_grpc.MemoryServiceStub(to_middle)
        return await stub.GetJob(request)

    first = await serve(GetJob=first_handler)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await _stub(first).GetJob(GET, metadata=tenant.metadata, timeout=2.0)
    assert caught.value.code() is Code.DEADLINE_EXCEEDED
    async with asyncio.timeout(30):
        await until(lambda: sorted(stopped) == ["embedder", "memory"])
    # gRPC rounds what it sends up.
    assert left["first"] <= 2.1
    assert left["memory"] < left["first"]
    assert left["embedder"] < left["memory"] - 0.15
    await to_last.close()
    await to_middle.close()


async def test_a_call_without_a_deadline_gets_one(serve: Serve, tenant):
    async def handler(request, ctx):
        await asyncio.sleep(30)

    chassis = ChassisSettings(drain_s=0, grace_s=1, default_deadline_s=0.2)
    running = await serve(ServerSettings(chassis=chassis), GetJob=handler)
    code, info, *_ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert (code, info.reason) == (Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")


async def test_a_timeout_of_the_handlers_own_is_told_apart(serve: Serve, tenant):
    async def handler(request, ctx):
        async with asyncio.timeout(0.01):
            await asyncio.sleep(5)

    running = await serve(GetJob=handler)
    code, info, *_ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert (code, dict(info.metadata)) == (Code.DEADLINE_EXCEEDED, {"step": "call"})


# --- G3: health, streams of all kinds -----------------------------------------------------------


async def test_g03_health_watch_through_every_interceptor(serve: Serve):
    wrong: list[str] = []

    async def check() -> str | None:
        return wrong[0] if wrong else None

    readiness = Readiness([("model", check)], interval_s=0.05)
    running = await serve(readiness=readiness)
    health = health_pb2_grpc.HealthStub(running.channel())
    name = "nianlun.memory.v1.MemoryService"
    statuses = []
    call = health.Watch(health_pb2.HealthCheckRequest(service=name))
    async for response in call:
        statuses.append(response.status)
        if len(statuses) == 1:
            wrong.append("constant scores")
        elif len(statuses) == 2:
            assert (await health.Check(health_pb2.HealthCheckRequest())).status == 2
            wrong.clear()
        else:
            break
    call.cancel()
    assert statuses == [1, 2, 1]


async def test_g03_a_slow_or_broken_check_fails_and_does_not_delay_health(serve: Serve):
    async def hangs() -> str | None:
        await asyncio.Event().wait()
        return None

    async def broken() -> str | None:
        raise errors.model_unavailable("m")

    readiness = Readiness([("slow", hangs), ("broken", broken)], timeout_s=0.05)
    running = await serve(readiness=readiness)
    health = health_pb2_grpc.HealthStub(running.channel())
    response = await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
    assert response.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert set(readiness.reasons) == {"slow", "broken"}


async def test_an_unknown_service_is_not_found_in_health(serve: Serve):
    running = await serve()
    health = health_pb2_grpc.HealthStub(running.channel())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health.Check(health_pb2.HealthCheckRequest(service="x"))
    assert caught.value.code() is Code.NOT_FOUND


async def test_reflection_lists_the_services(serve: Serve):
    running = await serve()
    stub = reflection_pb2_grpc.ServerReflectionStub(running.channel())

    async def ask():
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    async for answer in stub.ServerReflectionInfo(ask()):
        names = {service.name for service in answer.list_services_response.service}
        assert "nianlun.memory.v1.MemoryService" in names
        assert "grpc.health.v1.Health" in names
        break


async def test_streams_by_generator_and_by_writer_and_from_the_client(serve: Serve, tenant):
    async def by_generator(request, ctx):
        for number in range(3):
            yield memory_pb2.WatchJobResponse(job=common_pb2.Job(done=number))

    async def by_writer(request, ctx):
        for _ in range(3):
            await ctx.write(memory_pb2.ExportUserResponse())
        assert context.current_caller().tenant_id == tenant.tenant_id

    async def importer(requests, ctx):
        async for _ in requests:
            pass
        raise errors.failed_precondition("closed")

    running = await serve(WatchJob=by_generator, ExportUser=by_writer, ImportUser=importer)
    stub, metadata = _stub(running), tenant.metadata
    watched = [
        item.job.done
        async for item in stub.WatchJob(memory_pb2.WatchJobRequest(), metadata=metadata)
    ]
    assert watched == [0, 1, 2]
    exported = [
        item async for item in stub.ExportUser(memory_pb2.ExportUserRequest(), metadata=metadata)
    ]
    assert len(exported) == 3

    async def chunks():
        for _ in range(3):
            yield memory_pb2.ImportUserRequest()

    code, info, *_ = await _failure(stub.ImportUser(chunks(), metadata=metadata))
    assert (code, info.reason) == (Code.FAILED_PRECONDITION, "FAILED_PRECONDITION")


async def test_a_client_that_leaves_a_stream_stops_the_handler(serve: Serve, tenant):
    stopped = asyncio.Event()

    async def endless(request, ctx):
        try:
            while True:
                yield memory_pb2.WatchJobResponse()
                await asyncio.sleep(0.01)
        finally:
            stopped.set()

    running = await serve(WatchJob=endless)
    async with channel(running.target, credential=lambda: tenant.key) as ours:
        call = memory_pb2_grpc.MemoryServiceStub(ours).WatchJob(memory_pb2.WatchJobRequest())
        async with contextlib.aclosing(stream(call, "memory")) as events:
            async for _ in events:
                break
        async with asyncio.timeout(30):
            await stopped.wait()


# --- G9: bad input ------------------------------------------------------------------------------


async def test_g09_a_20_mb_request_is_refused_with_details(serve: Serve, tenant):
    async def embed(request, ctx):
        return embedder_pb2.EmbedResponse()

    running = await serve(Embed=embed)
    stub = embedder_pb2_grpc.EmbedderServiceStub(running.channel())
    request = embedder_pb2.EmbedRequest(texts=["x" * 20_000_000])
    code, info, *_ = await _failure(stub.Embed(request, metadata=tenant.metadata))
    assert (code, info.reason) == (Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE")
    assert info.metadata["limit_bytes"] == str(16 * 1024 * 1024)
    code, *_ = await _failure(stub.Embed(request))
    assert code is Code.UNAUTHENTICATED, "who has no key does not learn the limit"


async def test_g09_unknown_enums_and_negative_page_sizes(serve: Serve, tenant):
    async def listing(request, ctx):
        return memory_pb2.ListJobsResponse()

    running = await serve(ListJobs=listing)
    request = memory_pb2.ListJobsRequest(page_size=-1)
    request.states.extend([common_pb2.JOB_STATE_QUEUED, 99])  # type: ignore[list-item]
    code, info, others, _ = await _failure(
        _stub(running).ListJobs(request, metadata=tenant.metadata)
    )
    assert (code, info.reason) == (Code.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    fields = {item.field for item in others["BadRequest"].field_violations}
    assert fields == {"page_size", "states"}


async def test_g09_bytes_that_are_no_message_are_refused_with_details(serve: Serve, tenant):
    running = await serve(GetJob=_get_job)
    surrogate = b"\x0a\x03\xed\xa0\x80"  # field 1 holding a UTF-8 encoded lone surrogate
    for data in (surrogate, b"\xff\xff\xff"):
        call = running.channel().unary_unary("/nianlun.memory.v1.MemoryService/GetJob")
        code, info, *_ = await _failure(call(data, metadata=tenant.metadata))
        assert (code, info.reason) == (Code.INVALID_ARGUMENT, "INVALID_ARGUMENT")


# --- transport ----------------------------------------------------------------------------------


async def test_a_second_server_cannot_take_the_same_port(serve: Serve):
    running = await serve()
    with pytest.raises(errors.StartupError, match="Cannot listen"):
        await serve(ServerSettings(listen=running.target))


@pytest.mark.slow
async def test_g08_a_client_that_pings_stays_connected(serve: Serve, tenant):
    running = await serve(GetJob=_get_job)
    options = [
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    states = []
    async with grpc.aio.insecure_channel(running.target, options=options) as pinging:
        stub = memory_pb2_grpc.MemoryServiceStub(pinging)
        await stub.GetJob(GET, metadata=tenant.metadata)
        for _ in range(45):
            states.append(pinging.get_state())
            await asyncio.sleep(1)
        await stub.GetJob(GET, metadata=tenant.metadata)
    assert set(states) == {grpc.ChannelConnectivity.READY}


async def test_failures_downstream_arrive_as_domain_errors(serve: Serve, tenant):
    async def handler(request, ctx):
        raise errors.overloaded(2.5)

    running = await serve(GetJob=handler)
    async with channel(running.target, credential=lambda: tenant.key) as ours:
        with pytest.raises(errors.DomainError) as caught:
            await memory_pb2_grpc.MemoryServiceStub(ours).GetJob(GET)
    assert (caught.value.reason, caught.value.retry_after_s) == ("OVERLOADED", 2.5)
    async with channel("127.0.0.1:1") as nowhere:
        with pytest.raises(errors.DomainError) as caught:
            await memory_pb2_grpc.MemoryServiceStub(nowhere).GetJob(GET, timeout=3)
    assert caught.value.reason == "DEPENDENCY_UNAVAILABLE"
    assert caught.value.metadata["service"] == "memory"


async def test_w13_a_lost_answer_is_retried_only_where_the_contract_allows(serve: Serve, tenant):
    calls = []

    async def flaky(request, ctx):
        calls.append(1)
        if len(calls) < 3:
            raise errors.database_unavailable()
        return await _get_job(request, ctx)

    running = await serve(GetJob=flaky)
    async with channel(running.target, credential=lambda: tenant.key) as ours:
        await memory_pb2_grpc.MemoryServiceStub(ours).GetJob(GET)
    assert len(calls) == 3


async def test_metrics_and_spans_know_how_a_call_really_ended(serve: Serve, tenant):
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(ChassisSettings(), "test", SimpleSpanProcessor(exporter))

    async def handler(request, ctx):
        raise errors.not_found("job", "j")

    running = await serve(telemetry=telemetry, GetJob=handler)
    await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    await running.server.stop()  # the caller may hear of the failure before it is counted
    rpc = "nianlun.memory.v1.MemoryService/GetJob"
    counted = telemetry.metrics.registry.get_sample_value(
        "rpc_server_call_duration_seconds_count",
        {
            "rpc_system_name": "grpc",
            "rpc_method": rpc,
            "rpc_response_status_code": "NOT_FOUND",
        },
    )
    assert counted == 1
    [span] = [item for item in exporter.get_finished_spans() if item.name == rpc]
    assert span.attributes["rpc.system.name"] == "grpc"
    assert span.attributes["rpc.method"] == rpc
    assert span.attributes["rpc.response.status_code"] == "NOT_FOUND"
    assert span.status.status_code is StatusCode.UNSET  # the caller's fault, not the server's


async def test_a_span_of_a_fault_of_ours_is_an_error(serve: Serve, tenant):
    exporter = InMemorySpanExporter()
    telemetry = Telemetry(ChassisSettings(), "test", SimpleSpanProcessor(exporter))

    async def handler(request, ctx):
        raise RuntimeError("broken")

    running = await serve(telemetry=telemetry, GetJob=handler)
    await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    await running.server.stop()
    [span] = [item for item in exporter.get_finished_spans() if item.name.endswith("/GetJob")]
    assert span.attributes["error.type"] == "INTERNAL"
    assert span.status.status_code is StatusCode.ERROR


async def test_what_an_answer_lacks_is_counted(serve: Serve, tenant):
    telemetry = Telemetry(ChassisSettings(), "test")
    lacks = [common_pb2.Degradation(kind=common_pb2.DEGRADATION_KIND_DENSE_LEG_SKIPPED)]

    async def load(request, ctx):
        return memory_pb2.LoadMemoryResponse(degradations=lacks)

    async def follow(request, ctx):
        yield memory_pb2.WatchJobResponse()

    running = await serve(telemetry=telemetry, LoadMemory=load, WatchJob=follow)
    stub = _stub(running)
    for _ in range(2):
        await stub.LoadMemory(memory_pb2.LoadMemoryRequest(), metadata=tenant.metadata)
    watched = stub.WatchJob(memory_pb2.WatchJobRequest(), metadata=tenant.metadata)
    assert len([item async for item in watched]) == 1
    await running.server.stop()
    counted = telemetry.metrics.registry.get_sample_value(
        "nianlun_degradations_total", {"kind": "dense_leg_skipped"}
    )
    assert counted == 2


async def test_g06_calls_in_flight_finish_while_draining(serve: Serve, tenant):
    begun, go = [], asyncio.Event()

    async def slow(request, ctx):
        begun.append(request)
        await go.wait()
        return await _get_job(request, ctx)

    settings = ServerSettings(chassis=ChassisSettings(drain_s=0.2, grace_s=600))
    running = await serve(settings, GetJob=slow)
    stub, held = _stub(running), running.channel()
    # A balancer that watches does not hold the shutdown until its grace is over.
    states = aiter(health_pb2_grpc.HealthStub(held).Watch(health_pb2.HealthCheckRequest()))
    assert (await anext(states)).status == health_pb2.HealthCheckResponse.SERVING
    in_flight = [
        asyncio.ensure_future(stub.GetJob(GET, metadata=tenant.metadata)) for _ in range(20)
    ]
    async with asyncio.timeout(30):
        await until(lambda: len(begun) == 20)
        stopping = asyncio.create_task(running.server.stop())
        assert (await anext(states)).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not any(call.done() for call in in_flight)
        go.set()
        assert len(await asyncio.gather(*in_flight)) == 20
        await stopping
        assert [state async for state in states] == []


async def test_an_rpc_that_is_not_served_yet_is_unimplemented(serve: Serve, tenant):
    running = await serve()
    code, info, *_ = await _failure(_stub(running).GetJob(GET, metadata=tenant.metadata))
    assert (code, info.reason) == (Code.UNIMPLEMENTED, "UNIMPLEMENTED")
