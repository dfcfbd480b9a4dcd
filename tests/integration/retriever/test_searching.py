"""The searching cases, over the public contract."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from nianlun.common.v1 import common_pb2
from nianlun.retriever.v1 import retriever_pb2 as pb
from services.retriever import legs
from services.retriever.store import lexical
from services.search import engine
from tests.integration.retriever.conftest import Shelf
from tests.support import calls

LEXICAL = [
    pb.LegSetting(leg=pb.LEG_DENSE, weight=0.0),
    pb.LegSetting(leg=pb.LEG_PHRASE, weight=0.0),
]
DENSE = [
    pb.LegSetting(leg=pb.LEG_LEXICAL, weight=0.0),
    pb.LegSetting(leg=pb.LEG_PHRASE, weight=0.0),
]
NOISE = {f"noise-{n}": f"天气预报第{n}天：多云转晴。Day {n} was cloudy." for n in range(8)}


async def _refused(shelf: Shelf, **values: object) -> calls.Outcome:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shelf.search("anything", **values)  # type: ignore[arg-type]
    return calls.decode(caught.value)


async def test_s01_mixed_text_is_hit_by_each_part(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "x": "我们最近配置的 rerank 精排是什么模型"})
    for query in ("精排", "模型", "rerank", "最近用什么精排"):
        assert (await shelf.found(query, legs=LEXICAL))[:1] == ["x"], query


async def test_s02_nickname(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "x": '用户的花名是"小云"'})
    for query in ("花名", "小云"):
        assert (await shelf.found(query, legs=LEXICAL))[:1] == ["x"], query


async def test_s03_a_question_around_the_words(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "x": "第三章 外币汇率换算 按当日中间价执行。"})
    assert (await shelf.found("帮我查一下外币汇率换算的规则", legs=LEXICAL))[:1] == ["x"]


async def test_s04_two_shared_words_of_eight(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "x": "The turbine needs lubrication twice a year."})
    query = "how often should somebody do turbine lubrication here"
    assert (await shelf.found(query, legs=LEXICAL))[:1] == ["x"]


async def test_s06_rare_id_and_meaning_both_in_the_top(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put(
        {
            **NOISE,
            "id": "Paid in full: INV-20931, plumbing works.",
            "meaning": "An invoice states what a customer owes and when to pay the invoice.",
        }
    )
    response = await shelf.search("when to pay invoice INV-20931", top_k=5)
    found = {h.document_id: h for h in response.hits}
    assert {"id", "meaning"} <= set(found)
    assert all(h.explanation.legs for h in found.values())
    assert any(leg.rank == 1 for leg in found["id"].explanation.legs)


async def test_s08_no_zero_and_no_negative_scores(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "apple orchard", "b": "pear orchard"})
    one = await shelf.search("apple", legs=LEXICAL)
    assert [h.document_id for h in one.hits] == ["a"]
    assert one.hits[0].score > 0
    both = await shelf.search("orchard", legs=LEXICAL)
    assert {h.document_id for h in both.hits} == {"a", "b"}
    assert all(leg.score > 0 for h in both.hits for leg in h.explanation.legs)


async def test_s09_empty_things(shelf: Shelf) -> None:
    await shelf.create()
    assert (await shelf.search("anything")).hits == []
    await shelf.put({"a": "!!!", "b": "one thing", "c": "other thing"})
    assert len((await shelf.search("thing", top_k=1000)).hits) <= 3
    assert (await shelf.search("qwxyz", legs=LEXICAL)).hits == []
    assert (await shelf.search("!!!", legs=LEXICAL)).hits == []


async def test_s10_width_and_case_do_not_matter(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "wide": "ＤＤＲ５ 内存 ＲＴＸ４０９０", "narrow": "GTX1080 与 ddr3"})
    for query, want in (("ddr5", "wide"), ("RTX4090", "wide"), ("ＤＤＲ３", "narrow")):
        assert (await shelf.found(query, legs=LEXICAL))[:1] == [want], query


async def test_s11_identifiers_in_every_spelling(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put(
        {
            **NOISE,
            "h3c": "新华三 R6900 G5 服务器",
            "cve": "修复 CVE-2024-1234 漏洞",
            "part": "备件 311992D3",
            "nor": "NOR.0707-60 flange",
            "class": "OvertimeService computes hours",
        }
    )
    for query, want in (
        ("r6900g5", "h3c"),
        ("R6900-G5", "h3c"),
        ("2024-1234", "cve"),
        ("311992D3", "part"),
        ("NOR.0707-60", "nor"),
        ("overtime service", "class"),
    ):
        assert (await shelf.found(query))[:1] == [want], query


@pytest.mark.parametrize("query", ["C++ & (foo|bar):*", "a' OR 1=1 --", "<->", "?!…", "%_\\"])
async def test_s12_operators_are_text(shelf: Shelf, query: str) -> None:
    await shelf.create()
    await shelf.put({"a": "C++ and foo"})
    await shelf.search(query)


async def test_s14_duplicates_do_not_hide_the_distinct(shelf: Shelf) -> None:
    await shelf.create()
    same = [
        pb.DocumentInput(document_id=f"same-{n}", title=f"Copy {n}", text="Our policy on travel.")
        for n in range(400)
    ]
    distinct = {f"d-{n}": f"Travel policy of branch number{n}." for n in range(40)}
    for part in (same[:200], same[200:]):
        await shelf.put(part)
    await shelf.put(distinct)
    response = await shelf.search("travel policy", top_k=200)
    assert len([h for h in response.hits if h.document_id.startswith("same-")]) == 1
    assert {h.document_id for h in response.hits} >= set(distinct)
    for n in (0, 17, 39):
        assert (await shelf.found(f"policy of branch number{n}"))[0] == f"d-{n}"


async def test_s14_more_of_one_passage_is_asked_for_up_to_a_bound(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legs, "_WIDEST", 350)
    asked: list[int] = []
    lexical_leg = legs._lexical

    def counted(snap: Any, one: Any, among: Any, k: int, others: Any) -> legs.Found:
        asked.append(k)
        return lexical_leg(snap, one, among, k, others)

    monkeypatch.setattr(legs, "_lexical", counted)
    await shelf.create()
    same = [
        pb.DocumentInput(document_id=f"same-{n}", title=f"Copy {n}", text="Our policy on travel.")
        for n in range(360)
    ]
    for part in (same[:200], same[200:]):
        await shelf.put(part)
    asked.clear()
    assert len(await shelf.found("travel policy", top_k=300)) == 1
    assert asked == [300, 350]


async def test_a_long_question_is_judged_beside_the_event_loop(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def seen(work: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            threads.append(threading.current_thread().name)
            return work(*args, **kwargs)

        return call

    for name in ("fuse", "finish"):
        monkeypatch.setattr(engine, name, seen(getattr(engine, name)))
    await shelf.create()
    await shelf.put(NOISE)
    assert await shelf.found("cloudy " * 1_000)
    assert [name.rpartition("_")[0] for name in threads] == ["retriever", "retriever"]
    threads.clear()
    assert await shelf.found("cloudy")
    assert threads == [threading.current_thread().name] * 2


async def test_s15_a_table_keeps_its_header_and_every_row(shelf: Shelf) -> None:
    await shelf.create()
    rows = "".join(f"<tr><td>row{n:02d}x</td><td>{n} GB</td></tr>" for n in range(60))
    html = (
        "<html><body><h1>Memory</h1><table><caption>Sizes</caption>"
        "<tr><th rowspan=2>Model</th><th>Spec</th></tr><tr><th>RAM</th></tr>"
        f"{rows}</table></body></html>"
    )
    await shelf.put(
        [pb.DocumentInput(document_id="t", text=html, content_type=pb.CONTENT_TYPE_HTML)]
    )
    part = await shelf.stub.OpenDocumentPart(
        pb.OpenDocumentPartRequest(
            collection_id="docs", document_id="t", span=pb.PART_SPAN_DOCUMENT, max_chars=100_000
        )
    )
    chunks = [c.text for c in part.chunks if c.kind == pb.CHUNK_KIND_TABLE]
    assert len(chunks) >= 3
    assert all(c.count("| Model | RAM |") == 1 for c in chunks)
    assert [c.count("Sizes") for c in chunks] == [1] + [0] * (len(chunks) - 1)
    for n in range(60):
        assert sum(c.count(f"row{n:02d}x") for c in chunks) == 1
    assert part.text.count("| Model | RAM |") == 1


async def test_s16_a_pasted_log_is_answered(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({**NOISE, "x": "ERROR broker unreachable at shard 77"})
    log = "\n".join(
        f"2026-01-01T00:{n % 60:02d} host{n} INFO request {n * 7919} took {n} ms"
        for n in range(300)
    )
    query = f"{log}\nERROR broker unreachable at shard 77"
    response = await shelf.search(query[-20_000:], legs=LEXICAL, rerank=_no_rerank())
    assert not response.degradations
    assert response.hits[0].document_id == "x"


async def test_s16_of_a_long_question_the_most_common_words_are_only_counted(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.create()
    await shelf.put({f"d{n}": f"common usual own{n}" for n in range(40)} | {"x": "own3 rare thing"})
    whole = await shelf.search("common usual own3 rare", legs=LEXICAL, rerank=_no_rerank())
    monkeypatch.setattr(lexical, "_MANY_TERMS", 3)
    monkeypatch.setattr(lexical, "_MOST_BYTES", 64)
    short = await shelf.search("common usual own3 rare", legs=LEXICAL, rerank=_no_rerank())
    assert [h.document_id for h in whole.hits[:2]] == ["x", "d3"]
    assert [h.document_id for h in short.hits] == ["x", "d3"]
    for full, part in zip(whole.hits, short.hits, strict=False):
        assert part.explanation.legs[0].score <= full.explanation.legs[0].score
    # On the scale of the whole question: what was not read counts as not matched.
    assert short.hits[0].score == pytest.approx(whole.hits[0].score, abs=1e-6)


def _no_rerank() -> pb.RerankOptions:
    return pb.RerankOptions(kind=pb.RERANK_KIND_OFF)


async def test_s17_weights_count_and_unknown_parameters_are_refused(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "salmon salmon salmon river", "b": "river salmon trout perch pike"})
    off = {"rerank": _no_rerank()}
    lexical = await shelf.search("salmon", legs=LEXICAL, **off)
    assert {leg.leg for h in lexical.hits for leg in h.explanation.legs} == {pb.LEG_LEXICAL}
    dense = await shelf.search("salmon", legs=DENSE, **off)
    assert {leg.leg for h in dense.hits for leg in h.explanation.legs} == {pb.LEG_DENSE}
    assert [h.score for h in lexical.hits] != [h.score for h in dense.hits]
    for values, field in (
        ({"recipe": "nonsense"}, "recipe"),
        ({"legs": [pb.LegSetting(leg=pb.LEG_DENSE, weight=-1.0)]}, "legs[0].weight"),
        ({"legs": [pb.LegSetting(leg=pb.LEG_DENSE, weight=float("nan"))]}, "legs[0].weight"),
        ({"legs": [pb.LegSetting(weight=1.0)]}, "legs[0].leg"),
        ({"top_k": -1}, "top_k"),
        ({"top_k": 1001}, "top_k"),
        ({"diversity": pb.DiversityOptions(mmr_lambda=2.0)}, "diversity.mmr_lambda"),
        ({"scopes": [pb.SearchScope(collection_id="A B")]}, "scopes[0].collection_id"),
    ):
        refused = await _refused(shelf, **values)
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT, values
        assert refused.fields == (field,)
    unknown = await _refused(shelf, scopes=[pb.SearchScope(collection_id="nowhere")])
    assert unknown.reason == "NOT_FOUND"


async def test_s18_one_text_in_two_documents(shelf: Shelf) -> None:
    await shelf.create()
    inputs = []
    for name, year in (("a", 2023), ("b", 2024)):
        made = pb.DocumentInput(document_id=name, title=f"Report {year}", text="Lynx were seen.")
        made.metadata["year"].int_value = year
        inputs.append(made)
    await shelf.put(inputs)
    response = await shelf.search("lynx")
    assert len(response.hits) == 1
    hit = response.hits[0]
    years = {hit.metadata["year"].int_value}
    years |= {s.metadata["year"].int_value for s in hit.other_sources}
    assert years == {2023, 2024}
    assert hit.other_source_count == 1
    assert len({leg.leg for leg in hit.explanation.legs}) == len(hit.explanation.legs)


async def test_s19_reranker_slow_down_or_constant(shelf: Shelf, double: object) -> None:
    await shelf.create()
    assert (await shelf.search("nothing here")).hits == []
    await shelf.put({"a": "cranes fly south"})
    assert len((await shelf.search("cranes")).hits) == 1
    await shelf.put({"b": "cranes lift loads", "c": "cranes and herons"})
    kind = common_pb2.DegradationKind
    double.rerank_delay_s = 1.0  # type: ignore[attr-defined]
    slow = await shelf.search("cranes south", rerank=pb.RerankOptions(budget_ms=50))
    assert len(slow.hits) == 3
    assert kind.Value("DEGRADATION_KIND_RERANK_SKIPPED") in {d.kind for d in slow.degradations}
    double.rerank_delay_s = 0.0  # type: ignore[attr-defined]
    double.rerank_down = True  # type: ignore[attr-defined]
    down = await shelf.search("cranes south")
    assert [h.document_id for h in down.hits] == [h.document_id for h in slow.hits]
    assert kind.Value("DEGRADATION_KIND_RERANK_SKIPPED") in {d.kind for d in down.degradations}
    double.rerank_down = False  # type: ignore[attr-defined]
    double.constant_scores = True  # type: ignore[attr-defined]
    constant = await shelf.search("cranes south")
    assert kind.Value("DEGRADATION_KIND_MODEL_UNHEALTHY") in {d.kind for d in constant.degradations}


async def test_one_document_is_searched_by_an_index_in_memory(shelf: Shelf) -> None:
    await shelf.create()
    await shelf.put({"a": "ibex and chamois", "b": "ibex in the Alps"})
    scope = pb.SearchScope(collection_id="docs", document_ids=["b"])
    response = await shelf.search("ibex", scopes=[scope], recipe="document")
    assert [h.document_id for h in response.hits] == ["b"]
    methods = {r.leg: r.method for r in response.explanation.legs}
    assert methods[pb.LEG_LEXICAL] == "ram"


async def test_several_collections_in_one_ranking(shelf: Shelf) -> None:
    for name in ("one", "two"):
        await shelf.create(name)
    await shelf.put({"x": "marmots whistle"}, "one")
    await shelf.put({"y": "marmots whistle loudly at dawn", "z": "unrelated"}, "two")
    response = await shelf.search("marmots whistle", "one", "two")
    assert {(h.collection_id, h.document_id) for h in response.hits[:2]} == {
        ("one", "x"),
        ("two", "y"),
    }


@pytest.mark.parametrize("recipe", ["exact", "knowledge"])
async def test_s09_an_empty_collection_first_changes_nothing(shelf: Shelf, recipe: str) -> None:
    for name in ("empty", "full"):
        await shelf.create(name)
    await shelf.put({"x": "marmots whistle", "y": "ibex climb"}, "full")
    alone = await shelf.search("marmots", "full", recipe=recipe)
    both = await shelf.search("marmots", "empty", "full", recipe=recipe)
    assert both.hits[0].document_id == "x"
    assert both.hits[0].score == pytest.approx(alone.hits[0].score)
    assert not both.degradations


@pytest.mark.parametrize("balance", [0.3, 1.0])
async def test_collections_of_two_models_in_one_ranking(shelf: Shelf, balance: float) -> None:
    await shelf.create("one", model_id="small")
    await shelf.create("two", model_id="large")
    await shelf.put({"x": "marmots whistle", "y": "marmots dig"}, "one")
    await shelf.put({"z": "marmots sleep", "w": "a marmot sleeps"}, "two")
    options = pb.DiversityOptions(mmr_lambda=balance)
    response = await shelf.search("marmots", "one", "two", diversity=options)
    assert {h.document_id for h in response.hits} >= {"x", "y", "z"}
    assert list(response.explanation.model_ids) == ["large", "small"]


async def test_mmr_and_cap_per_document(shelf: Shelf) -> None:
    await shelf.create()
    long = "\n\n".join(f"# Part {n}\n\nGlaciers retreat in valley {n}." for n in range(5))
    await shelf.put({"a": long, "b": "Glaciers calve into the sea."})
    capped = await shelf.search("glaciers", diversity=pb.DiversityOptions(max_per_document=1))
    assert sorted(h.document_id for h in capped.hits) == ["a", "b"]
    mixed = await shelf.search("glaciers", top_k=2, diversity=pb.DiversityOptions(mmr_lambda=0.3))
    assert {h.document_id for h in mixed.hits} == {"a", "b"}


async def test_stored_token_vectors_rerank_without_the_embedder(
    shelf: Shelf, double: object
) -> None:
    await shelf.create(model_id="late")
    await shelf.put({"a": "storks nest on chimneys", "b": "storks and chimneys", "c": "chimneys"})
    double.rerank_down = True  # type: ignore[attr-defined]
    response = await shelf.search("storks nest")
    assert not response.degradations
    assert "stored token vectors" in response.explanation.rerank_model_id
    best = response.hits[0]
    assert best.document_id == "a"
    # The same words; two bits a number keep sqrt(1 - 0.1175) of a direction (Max 1960).
    assert best.explanation.rerank_raw_score == pytest.approx(0.939, abs=0.02)
    await shelf.put({"a": "storks fly to Africa"})
    again = await shelf.search("storks fly")
    assert again.hits[0].document_id == "a"
    assert not again.degradations
