"""The methods of both clients that are one RPC each: one home, bound by each client in its way."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from google.protobuf.message import Message as ProtoMessage

from nianlun.operations import (
    background,
    chats,
    knowledge,
    memories,
    models,
    spaces,
    turns,
    upkeep,
)
from nianlun.operations.core import Operation

if TYPE_CHECKING:
    from nianlun.aio import AsyncClient
    from nianlun.client import Client

P = ParamSpec("P")
Response = TypeVar("Response", bound=ProtoMessage)


class Bound(Generic[P, Response]):
    """An operation as a method: same arguments; a ``Client`` answers the response, an
    ``AsyncClient`` a coroutine of it.
    """

    def __init__(self, operation: Operation[P, Response]) -> None:
        self.operation = operation
        self.__doc__ = operation.build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Bound[P, Response]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, Response]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type
    ) -> Callable[P, Coroutine[Any, Any, Response]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: type) -> Any:
        if client is None:
            return self
        call: Any = client.bind(self.operation)
        call.__doc__ = self.__doc__
        call.__name__ = self.operation.build.__name__
        return call


class Methods:
    """A method for every unary RPC; streams are methods of the clients themselves."""

    # Documents and search
    create_collection = Bound(knowledge.create_collection)
    get_collection = Bound(knowledge.get_collection)
    list_collections = Bound(knowledge.list_collections)
    update_collection = Bound(knowledge.update_collection)
    delete_collection = Bound(knowledge.delete_collection)
    upsert_documents = Bound(knowledge.upsert_documents)
    get_document = Bound(knowledge.get_document)
    list_documents = Bound(knowledge.list_documents)
    delete_documents = Bound(knowledge.delete_documents)
    open_document_part = Bound(knowledge.open_document_part)
    search = Bound(knowledge.search)
    list_recipes = Bound(knowledge.list_recipes)
    # Embedding spaces
    start_reembed = Bound(spaces.start_reembed)
    switch_embedding = Bound(spaces.switch_embedding)
    backfill_embeddings = Bound(spaces.backfill_embeddings)
    calibrate = Bound(spaces.calibrate)
    get_calibration = Bound(spaces.get_calibration)
    # Memory
    append_turn = Bound(memories.append_turn)
    load_memory = Bound(memories.load_memory)
    end_session = Bound(memories.end_session)
    list_facts = Bound(memories.list_facts)
    put_fact = Bound(memories.put_fact)
    correct_fact = Bound(memories.correct_fact)
    retract_fact = Bound(memories.retract_fact)
    fact_history = Bound(memories.fact_history)
    search_episodes = Bound(memories.search_episodes)
    list_episodes = Bound(memories.list_episodes)
    get_summary = Bound(memories.get_summary)
    record_reading = Bound(memories.record_reading)
    similar_readings = Bound(memories.similar_readings)
    # What was said
    list_turns = Bound(turns.list_turns)
    search_turns = Bound(turns.search_turns)
    delete_turn = Bound(turns.delete_turn)
    get_position = Bound(turns.get_position)
    list_sessions = Bound(turns.list_sessions)
    list_users = Bound(turns.list_users)
    erase_user_memory = Bound(turns.erase_user_memory)
    erase_session_memory = Bound(turns.erase_session_memory)
    # Upkeep of memory
    correct_episode = Bound(upkeep.correct_episode)
    delete_episode = Bound(upkeep.delete_episode)
    refresh_summary = Bound(upkeep.refresh_summary)
    list_readings = Bound(upkeep.list_readings)
    reading_feedback = Bound(upkeep.reading_feedback)
    delete_reading = Bound(upkeep.delete_reading)
    get_usage = Bound(upkeep.get_usage)
    get_settings = Bound(upkeep.get_settings)
    update_settings = Bound(upkeep.update_settings)
    # Chat
    chat = Bound(chats.chat)
    build_context = Bound(chats.build_context)
    get_run = Bound(chats.get_run)
    list_runs = Bound(chats.list_runs)
    submit_feedback = Bound(chats.submit_feedback)
    erase_user = Bound(chats.erase_user)
    erase_session = Bound(chats.erase_session)
    # Models
    embed = Bound(models.embed)
    rerank = Bound(models.rerank)
    list_models = Bound(models.list_models)
    # Jobs
    get_memory_job = Bound(background.get_memory_job)
    list_memory_jobs = Bound(background.list_memory_jobs)
    cancel_memory_job = Bound(background.cancel_memory_job)
    replay_memory_job = Bound(background.replay_memory_job)
    get_retriever_job = Bound(background.get_retriever_job)
    list_retriever_jobs = Bound(background.list_retriever_jobs)
    cancel_retriever_job = Bound(background.cancel_retriever_job)
    replay_retriever_job = Bound(background.replay_retriever_job)
