"""Cancelling a job that has ended: both services give it back unchanged; the command says so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner

from nianlun.common.v1 import common_pb2
from nianlun.memory.v1 import memory_pb2 as m
from nianlun.retriever.v1 import retriever_pb2 as r
from services.cli.jobs import app
from tests.support.canary import wait_for_job
from tests.support.requests import new_id
from tests.support.stack import Client, Stack


async def _ended(client: Client, service: str) -> tuple[Any, common_pb2.Job]:
    """Messages of the service, and a job of it that has succeeded."""
    if service == "memory":
        said = [m.Message(role=m.ROLE_USER, text="我住在杭州。")]
        await client.memory.AppendTurn(
            m.AppendTurnRequest(request_id=new_id(), user_id="u", session_id="s", messages=said)
        )
        asked = m.EndSessionRequest(request_id=new_id(), user_id="u", session_id="s")
        job = (await client.memory.EndSession(asked)).job
        return m, await wait_for_job(client.memory, job.job_id)
    await client.retriever.CreateCollection(
        r.CreateCollectionRequest(request_id=new_id(), collection_id="c")
    )
    documents = [r.DocumentInput(document_id="d", text="年轮记录树的一生。")]
    upload = r.UpsertDocumentsRequest(request_id=new_id(), collection_id="c", documents=documents)
    job = (await client.retriever.UpsertDocuments(upload)).job
    return r, await wait_for_job(client.retriever, job.job_id)


@pytest.mark.parametrize("service", ["memory", "retriever"])
async def test_a_job_that_has_ended_is_given_back_unchanged(
    stack: Stack, client: Client, service: str
) -> None:
    messages, job = await _ended(client, service)
    assert job.state == common_pb2.JOB_STATE_SUCCEEDED
    stub = client.memory if service == "memory" else client.retriever
    request = messages.CancelJobRequest(request_id=new_id(), job_id=job.job_id)
    assert (await stub.CancelJob(request)).job == job
    command = ["cancel", job.job_id, "--service", service, "--target", stack.target(service)]
    told = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--key", client.tenant.key])
    # The services of the tests write their logs to the same place.
    assert told.output.splitlines()[-1] == f"{job.job_id}: succeeded"
    assert told.exit_code == 0
