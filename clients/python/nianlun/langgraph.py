"""Nianlun's memory as two LangGraph nodes around any agent (``pip install langgraph``).

    memory = MemoryNodes(client)
    graph.add_node("load_memory", memory.load_memory)
    graph.add_node("save_memory", memory.save_memory)

Memory goes into the state key ``nianlun_memory``, never into the messages; ``system_prompt`` puts
it into the system prompt of every model call. The user is ``configurable.user_id``, the session
``configurable.thread_id``; the checkpointer is your own. Without a user, or when memory does not
answer, the graph runs on without memory; the logger ``nianlun.langgraph`` says so. The nodes are
coroutines: run the graph with ``ainvoke`` or ``astream``.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import MessagesState

from nianlun.aio import AsyncClient
from nianlun.errors import NianlunError
from nianlun.memory.v1 import memory_pb2

_LOG = logging.getLogger("nianlun.langgraph")


class MemoryState(MessagesState):
    """Messages and the memory that was loaded for the latest one."""

    nianlun_memory: str


class MemoryNodes:
    """The two shells of an agent. ``budget_tokens`` bounds what memory may add to a prompt."""

    def __init__(self, client: AsyncClient, *, budget_tokens: int = 1_500) -> None:
        self._client = client
        self._budget_tokens = budget_tokens

    async def load_memory(self, state: Mapping[str, Any], config: RunnableConfig) -> dict[str, str]:
        """Load what is known for the last user message into ``nianlun_memory``."""
        user, session = _who(config)
        question = _last(state["messages"], HumanMessage)
        if not user or question is None:
            return {"nianlun_memory": ""}
        request = memory_pb2.LoadMemoryRequest(
            user_id=user,
            session_id=session,
            query=_text(question)[:32_000],
            budget_tokens=self._budget_tokens,
            exclude_session=bool(session) and len(state["messages"]) > 1,
        )
        try:
            response = await self._client.memory.LoadMemory(request)
        except (grpc.RpcError, NianlunError) as error:
            _LOG.warning("memory was not loaded: %s", _why(error))
            return {"nianlun_memory": ""}
        return {"nianlun_memory": response.rendered}

    async def save_memory(self, state: Mapping[str, Any], config: RunnableConfig) -> dict[str, Any]:
        """Save the last exchange: a question that was not answered, alone. Running it again for the
        same messages changes nothing.
        """
        user, session = _who(config)
        question, answer = _last_exchange(state["messages"])
        if not user or not session or question is None or not _text(question).strip():
            return {}
        said = [memory_pb2.Message(role=memory_pb2.ROLE_USER, text=_text(question)[:32_000])]
        if answer is not None and _text(answer).strip():
            said.append(
                memory_pb2.Message(role=memory_pb2.ROLE_ASSISTANT, text=_text(answer)[:32_000])
            )
        request = memory_pb2.AppendTurnRequest(
            request_id=_request_id(user, session, len(state["messages"]), question, answer),
            user_id=user,
            session_id=session,
            messages=said,
        )
        try:
            await self._client.memory.AppendTurn(request)
        except (grpc.RpcError, NianlunError) as error:
            # The answer stands, whatever becomes of the memory of it.
            _LOG.warning("the turn was not saved: %s", _why(error))
        return {}


def system_prompt(instructions: str = "") -> Any:
    """A prompt for ``create_react_agent`` and the like: instructions, then memory, as one system
    message before the messages of the state."""

    def prompt(state: Mapping[str, Any]) -> list[BaseMessage]:
        memory = str(state.get("nianlun_memory") or "")
        system = "\n\n".join(part for part in (instructions, memory) if part)
        before: list[BaseMessage] = [SystemMessage(system)] if system else []
        return [*before, *state["messages"]]

    return prompt


def _why(error: grpc.RpcError | NianlunError) -> str:
    """What failed, without a word of what was said."""
    return error.code.name if isinstance(error, NianlunError) else type(error).__name__


def _who(config: RunnableConfig) -> tuple[str, str]:
    configurable = config.get("configurable") or {}
    return str(configurable.get("user_id") or ""), str(configurable.get("thread_id") or "")


def _last(messages: Sequence[BaseMessage], kind: type[BaseMessage]) -> BaseMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, kind)), None)


def _last_exchange(
    messages: Sequence[BaseMessage],
) -> tuple[BaseMessage | None, BaseMessage | None]:
    """The last question and what was said to it last: an earlier answer is to another question."""
    for place in reversed(range(len(messages))):
        if isinstance(messages[place], HumanMessage):
            return messages[place], _last(messages[place:], AIMessage)
    return None, None


def _text(message: BaseMessage) -> str:
    content = message.content
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)


def _request_id(
    user: str, session: str, position: int, question: BaseMessage, answer: BaseMessage | None
) -> str:
    """The same for the same exchange at the same place of a user's session.

    Request ids are of the tenant: two users whose threads have one name may well say the same.
    """
    said = (_text(question), _text(answer) if answer else "")
    digest = hashlib.sha256()
    for part in (user, session, str(position), *said):
        digest.update(part.encode("utf-8", "replace") + b"\0")
    return f"langgraph-{digest.hexdigest()[:40]}"
