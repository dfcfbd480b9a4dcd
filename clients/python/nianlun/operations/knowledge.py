"""Operations of the retriever: collections, documents, search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.message import Message as ProtoMessage

from nianlun.operations.core import operation
from nianlun.retriever.v1 import retriever_pb2 as retriever
from nianlun.values import Plain, new_request_id, value_map


@operation("retriever", "CreateCollection", retriever.CreateCollectionResponse)
def create_collection(
    collection_id: str,
    *,
    display_name: str = "",
    description: str = "",
    default_recipe: str = "",
    model_id: str = "",
    request_id: str | None = None,
) -> ProtoMessage:
    """Create a collection. ALREADY_EXISTS when there is one of this id."""
    return retriever.CreateCollectionRequest(
        request_id=request_id or new_request_id(),
        collection_id=collection_id,
        display_name=display_name,
        description=description,
        default_recipe=default_recipe,
        model_id=model_id,
    )


@operation("retriever", "GetCollection", retriever.GetCollectionResponse)
def get_collection(collection_id: str) -> ProtoMessage:
    """A collection with its counts and embedding spaces."""
    return retriever.GetCollectionRequest(collection_id=collection_id)


@operation("retriever", "ListCollections", retriever.ListCollectionsResponse)
def list_collections(*, page_size: int = 0, page_token: str = "") -> ProtoMessage:
    """One page of the tenant's collections."""
    return retriever.ListCollectionsRequest(page_size=page_size, page_token=page_token)


@operation("retriever", "UpdateCollection", retriever.UpdateCollectionResponse)
def update_collection(
    collection_id: str,
    *,
    display_name: str | None = None,
    description: str | None = None,
    default_recipe: str | None = None,
    etag: str = "",
    request_id: str | None = None,
) -> ProtoMessage:
    """Change what a collection says of itself; None leaves a field as it is."""
    return retriever.UpdateCollectionRequest(
        request_id=request_id or new_request_id(),
        collection_id=collection_id,
        display_name=display_name,
        description=description,
        default_recipe=default_recipe,
        etag=etag,
    )


@operation("retriever", "DeleteCollection", retriever.DeleteCollectionResponse)
def delete_collection(collection_id: str, *, request_id: str | None = None) -> ProtoMessage:
    """Delete a collection with all that is in it."""
    return retriever.DeleteCollectionRequest(
        request_id=request_id or new_request_id(), collection_id=collection_id
    )


@operation("retriever", "UpsertDocuments", retriever.UpsertDocumentsResponse)
def upsert_documents(
    collection_id: str,
    documents: Sequence[retriever.DocumentInput],
    *,
    request_id: str | None = None,
) -> ProtoMessage:
    """Store or replace documents (see ``document``); answers a job that chunks and embeds them."""
    return retriever.UpsertDocumentsRequest(
        request_id=request_id or new_request_id(), collection_id=collection_id, documents=documents
    )


@operation("retriever", "GetDocument", retriever.GetDocumentResponse)
def get_document(
    collection_id: str,
    document_id: str,
    *,
    include_text: bool = False,
    text_offset: int = 0,
    max_text_chars: int = 0,
) -> ProtoMessage:
    """A document, with its text on request."""
    return retriever.GetDocumentRequest(
        collection_id=collection_id,
        document_id=document_id,
        include_text=include_text,
        text_offset=text_offset,
        max_text_chars=max_text_chars,
    )


@operation("retriever", "ListDocuments", retriever.ListDocumentsResponse)
def list_documents(
    collection_id: str,
    *,
    filter: retriever.MetadataFilter | None = None,  # noqa: A002 - the contract's name
    states: Sequence[retriever.DocumentState.ValueType] = (),
    page_size: int = 0,
    page_token: str = "",
) -> ProtoMessage:
    """One page of the documents of a collection."""
    return retriever.ListDocumentsRequest(
        collection_id=collection_id,
        filter=filter,
        states=states,
        page_size=page_size,
        page_token=page_token,
    )


@operation("retriever", "DeleteDocuments", retriever.DeleteDocumentsResponse)
def delete_documents(
    collection_id: str,
    document_ids: Sequence[str],
    *,
    allow_missing: bool = False,
    request_id: str | None = None,
) -> ProtoMessage:
    """Delete documents with their chunks and vectors."""
    return retriever.DeleteDocumentsRequest(
        request_id=request_id or new_request_id(),
        collection_id=collection_id,
        document_ids=document_ids,
        allow_missing=allow_missing,
    )


@operation("retriever", "OpenDocumentPart", retriever.OpenDocumentPartResponse)
def open_document_part(
    collection_id: str,
    document_id: str,
    *,
    chunk_id: str = "",
    ordinal: int = 0,
    span: retriever.PartSpan.ValueType = retriever.PART_SPAN_UNSPECIFIED,
    before: int = 0,
    after: int = 0,
    max_chars: int = 0,
) -> ProtoMessage:
    """The text around a chunk: its neighbours (by default), its section, or the document."""
    return retriever.OpenDocumentPartRequest(
        collection_id=collection_id,
        document_id=document_id,
        chunk_id=chunk_id,
        ordinal=ordinal,
        span=span,
        before=before,
        after=after,
        max_chars=max_chars,
    )


@operation("retriever", "ListRecipes", retriever.ListRecipesResponse)
def list_recipes() -> ProtoMessage:
    """The named search recipes with their parameters."""
    return retriever.ListRecipesRequest()


@operation("retriever", "Search", retriever.SearchResponse)
def search(
    query: str,
    collection_id: str,
    *,
    document_ids: Sequence[str] = (),
    filter: retriever.MetadataFilter | None = None,  # noqa: A002 - the contract's name
    recipe: str = "",
    top_k: int = 0,
    explain: bool | None = None,
    rerank: retriever.RerankOptions | None = None,
    context: retriever.ContextOptions | None = None,
    legs: Sequence[retriever.LegSetting] = (),
    fusion: retriever.FusionKind.ValueType = retriever.FUSION_KIND_UNSPECIFIED,
    diversity: retriever.DiversityOptions | None = None,
    gate: retriever.GateMode.ValueType = retriever.GATE_MODE_UNSPECIFIED,
    more_scopes: Sequence[retriever.SearchScope] = (),
) -> ProtoMessage:
    """Search a collection (and ``more_scopes``); what is given overrides the recipe."""
    scope = retriever.SearchScope(
        collection_id=collection_id, document_ids=document_ids, filter=filter
    )
    return retriever.SearchRequest(
        query=query,
        scopes=[scope, *more_scopes],
        legs=legs,
        fusion=fusion,
        diversity=diversity,
        gate=gate,
        recipe=recipe,
        top_k=top_k,
        explain=explain,
        rerank=rerank,
        context=context,
    )


def document(
    document_id: str,
    content: str | bytes,
    *,
    title: str = "",
    content_type: retriever.ContentType.ValueType = retriever.CONTENT_TYPE_UNSPECIFIED,
    uri: str = "",
    metadata: Mapping[str, Plain] | None = None,
) -> retriever.DocumentInput:
    """A document for ``upsert_documents``: its text, or the bytes of a file (PDF, HTML, ...).

    Without ``content_type`` the service finds out: from the bytes, the file name of ``uri``, the
    text.
    """
    made = retriever.DocumentInput(
        document_id=document_id,
        title=title,
        content_type=content_type,
        uri=uri,
        metadata=value_map(metadata),
    )
    if isinstance(content, bytes):
        made.data = content
    else:
        made.text = content
    return made
