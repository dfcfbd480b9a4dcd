"""Operations of the retriever on embedding spaces: another model, missing vectors, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message as ProtoMessage

from nianlun.operations.core import operation
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun.values import new_request_id


@operation("retriever", "StartReembed", retriever.StartReembedResponse)
def start_reembed(
    collection_id: str,
    model_id: str,
    *,
    hold_switch: bool = False,
    request_id: str | None = None,
) -> ProtoMessage:
    """Embed a collection with another model while it serves; answers a job.

    It switches by itself when all vectors are there, unless ``hold_switch`` is set.
    """
    return retriever.StartReembedRequest(
        request_id=request_id or new_request_id(),
        collection_id=collection_id,
        model_id=model_id,
        hold_switch=hold_switch,
    )


@operation("retriever", "SwitchEmbedding", retriever.SwitchEmbeddingResponse)
def switch_embedding(
    collection_id: str,
    model_id: str,
    *,
    drop_previous: bool = False,
    request_id: str | None = None,
) -> ProtoMessage:
    """Make another complete embedding space the active one: a held switch, or a rollback."""
    return retriever.SwitchEmbeddingRequest(
        request_id=request_id or new_request_id(),
        collection_id=collection_id,
        model_id=model_id,
        drop_previous=drop_previous,
    )


@operation("retriever", "BackfillEmbeddings", retriever.BackfillEmbeddingsResponse)
def backfill_embeddings(collection_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Compute the vectors that are pending now rather than later; answers a job."""
    return retriever.BackfillEmbeddingsRequest(
        request_id=request_id or new_request_id(), collection_id=collection_id
    )


@operation("retriever", "Calibrate", retriever.CalibrateResponse)
def calibrate(
    collection_id: str,
    pairs: Mapping[str, Sequence[str]] | None = None,
    *,
    request_id: str | None = None,
) -> ProtoMessage:
    """Fit the fusion anchors and the gate of a collection's model; answers a job.

    ``pairs`` maps questions to the ids of the documents that answer them; without any, pairs are
    made of the collection itself.
    """
    labelled = [
        retriever.LabelledPair(query=query, document_ids=ids)
        for query, ids in (pairs or {}).items()
    ]
    return retriever.CalibrateRequest(
        request_id=request_id or new_request_id(), collection_id=collection_id, pairs=labelled
    )


@operation("retriever", "GetCalibration", retriever.GetCalibrationResponse)
def get_calibration(model_id: str) -> ProtoMessage:
    """The calibration in force for a model. NOT_FOUND where it has none."""
    return retriever.GetCalibrationRequest(model_id=model_id)
