"""The console in a real Chromium: a streamed chat, a citation, memory corrected and forgotten, an
upload.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nianlun.memory.v1 import memory_pb2 as m
from tests.support import fake_llm as llm
from tests.support.db import Databases
from tests.support.fake_llm import FakeLlm
from tests.support.gateway import serving
from tests.support.requests import new_id
from tests.support.stack import Client, Stack

pytestmark = [pytest.mark.browser, pytest.mark.slow]
playwright = pytest.importorskip("playwright.async_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
SHOTS = os.environ.get("CONSOLE_SCREENSHOTS", "")
DOCUMENT = """# 年轮的融合

默认的融合方式是校准凸组合：每条腿的分数按固定锚点校准，再加权相加。

# 后台任务

后台任务的租约是三十秒，工作进程每五秒续租一次。
"""
expect: Any = playwright.expect


@pytest.fixture(scope="module")
async def stack(databases: Databases, _llm_server: FakeLlm) -> AsyncIterator[Stack]:
    if not CHROMIUM:
        pytest.skip("Chromium is not installed (apt install chromium)")
    running = Stack(databases.new(), llm=_llm_server)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture(scope="module")
async def url(stack: Stack) -> AsyncIterator[str]:
    async with serving(stack) as found:
        yield found


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as driver:
        made = await driver.chromium.launch(
            executable_path=CHROMIUM,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--no-first-run",
            ],
        )
        yield made
        await made.close()


@pytest.fixture
def client(stack: Stack) -> Client:
    return stack.client()


@pytest.fixture
async def page(browser: Any, url: str, client: Client, fake_llm: FakeLlm) -> AsyncIterator[Any]:
    """A tab with a key; any error in the console or of the policy fails the test."""
    fake_llm.on(None, llm.text('{"facts": []}'))
    context = await browser.new_context(
        locale="zh-CN", viewport={"width": 1360, "height": 860}, device_scale_factor=2
    )
    opened = await context.new_page()
    opened.set_default_timeout(15_000)
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on(
        "console",
        lambda said: (
            problems.append(said.text)
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    await opened.goto(f"{url}/#key={client.tenant.key}")
    await opened.wait_for_selector(".composer textarea")
    yield opened
    await context.close()
    assert not problems


async def _shot(page: Any, name: str) -> None:
    if SHOTS:
        await expect(page.locator(".toast")).to_have_count(0)
        await page.mouse.move(0, 0)
        await page.screenshot(path=f"{SHOTS}/{name}.png")


async def _remember(client: Client) -> None:
    for attribute, value, kind in (
        ("name", "林晓雨", m.FACT_KIND_FACT),
        ("city", "成都", m.FACT_KIND_FACT),
        ("answer_style", "简短", m.FACT_KIND_PREFERENCE),
    ):
        await client.memory.PutFact(
            m.PutFactRequest(
                request_id=new_id(), user_id="u_001", kind=kind, attribute=attribute, value=value
            )
        )


async def _upload(page: Any, url: str) -> None:
    await page.goto(f"{url}/#/library")
    await page.fill("form input", "guide")
    await page.click("form button")
    await page.wait_for_selector(".drop")
    await page.set_input_files(
        "#files",
        {"name": "fusion.md", "mimeType": "text/markdown", "buffer": DOCUMENT.encode()},
    )
    await expect(page.locator("table")).to_contain_text("已就绪")


async def test_upload_then_ask_with_a_citation_that_opens(
    page: Any, url: str, client: Client, fake_llm: FakeLlm
) -> None:
    await _remember(client)
    await _upload(page, url)
    await _shot(page, "console-library")
    answer = llm.text(
        "默认是**校准凸组合**。[E1]\n\n- 分数按锚点校准 [E1]\n- 再加权相加", piece_delay_s=0.05
    )
    fake_llm.on("融合方式", answer)
    await page.goto(f"{url}/#/chat")
    await page.fill(".composer textarea", "默认的融合方式是什么？")
    await page.keyboard.press("Enter")
    await page.wait_for_selector(".caret")  # it streams
    await expect(page.locator(".msg.bot .prose")).to_contain_text("加权相加")
    await expect(page.locator(".steps li.ok")).not_to_have_count(0)
    await expect(page.locator(".trace .source.cited")).to_have_count(1)
    await _shot(page, "console-chat")
    await page.locator(".msg.bot .cite").first.click()
    await expect(page.locator("dialog .quote")).to_contain_text("校准凸组合")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    await page.goto(f"{url}/#/search")
    await page.fill("form input[type=search]", "融合方式")
    await page.click("form .btn.primary")
    await expect(page.locator(".hit")).not_to_have_count(0)
    assert await page.locator(".hit .bar").count() >= 2
    await _shot(page, "console-search")


async def test_a_search_starts_in_a_collection_and_tells_its_steps_in_the_users_language(
    page: Any, url: str, client: Client
) -> None:
    await page.goto(f"{url}/#/search")
    collections = page.locator("form select").first
    await expect(collections).to_have_text("还没有资料库")
    await expect(collections).to_be_disabled()
    await page.fill("form input[type=search]", "融合方式")
    await page.click("form .btn.primary")
    await expect(page.locator(".empty")).to_contain_text("新建一个")
    await _upload(page, url)
    # Whatever the chat was left with: nothing, or a collection that is gone since.
    for left in ("", "gone"):
        await page.evaluate(
            "left => localStorage.setItem('nianlun', JSON.stringify("
            "{...JSON.parse(localStorage.getItem('nianlun')), collection: left}))",
            left,
        )
        await page.goto(f"{url}/#/search")
        await page.reload()
        await expect(page.locator("form select").first).to_have_value("guide")
        await page.fill("form input[type=search]", "融合方式")
        await page.click("form .btn.primary")
        await expect(page.locator(".hit")).not_to_have_count(0)
        kept = await page.evaluate("JSON.parse(localStorage.getItem('nianlun')).collection")
        assert kept == left, "looking does not change what the chat uses"
    steps = await page.locator(".card p.faint").first.inner_text()
    assert "合计" in steps
    assert "融合" in steps
    assert set(re.findall(r"[A-Za-z_]+", steps)) <= {"ms", "s"}, steps
    await expect(page.locator(".hit .faint").first).to_contain_text("段落")
    await page.get_by_role("button", name=re.compile("Language")).click()
    await page.fill("form input[type=search]", "融合方式")
    await page.click("form .btn.primary")
    await expect(page.locator(".card p.faint").first).to_contain_text("query vector")


async def test_a_fact_corrected_is_seen_in_the_next_answer_and_forgotten_on_request(
    page: Any, url: str, client: Client, fake_llm: FakeLlm
) -> None:
    await _remember(client)
    await page.goto(f"{url}/#/memory")
    card = page.locator(".fact[data-attribute=city]")
    await expect(card).to_contain_text("成都")
    await _shot(page, "console-memory")
    await card.get_by_role("button", name="改正").click()
    await page.fill("dialog input", "杭州")
    await page.click("dialog .btn.primary")
    await expect(card).to_contain_text("杭州")
    await card.get_by_role("button", name="来历").click()
    await expect(page.locator("dialog .history")).to_contain_text("成都")
    await page.keyboard.press("Escape")
    fake_llm.on("我住哪", llm.text("你住在杭州。"))
    await page.goto(f"{url}/#/chat")
    await page.fill(".composer textarea", "我住哪？")
    await page.keyboard.press("Enter")
    await expect(page.locator(".msg.bot .prose")).to_contain_text("杭州")
    await expect(page.locator(".trace .memo").first).to_be_visible()
    asked = [call for call in fake_llm.chats() if "我住哪" in call.of_role("user")]
    assert "杭州" in asked[0].of_role("system")
    await page.get_by_role("button", name=re.compile("Language")).click()
    await page.get_by_role("button", name="Theme").click()
    # After a reload the session comes back as memory has it.
    await page.reload()
    await expect(page.locator(".msg.user .bubble")).to_have_text("我住哪？")
    await expect(page.locator(".msg.bot .prose")).to_contain_text("杭州")
    await page.fill(".composer textarea", "我住哪？再说一遍。")
    await page.keyboard.press("Enter")
    await expect(page.locator(".trace")).to_contain_text("Memory used")
    await expect(page.locator(".msg.bot .judge")).to_have_count(1)
    await _shot(page, "console-chat-en-dark")
    await page.get_by_role("button", name=re.compile("Language")).click()
    await page.get_by_role("button", name="明暗").click()
    await page.goto(f"{url}/#/memory")
    await card.get_by_role("button", name="遗忘").click()
    await page.click("dialog .btn.danger")
    await expect(card).to_have_count(0)


async def test_both_languages_themes_keyboard_and_a_narrow_screen(page: Any, url: str) -> None:
    await expect(page.locator(".rail")).to_contain_text("对话")
    await page.get_by_role("button", name=re.compile("Language")).click()
    await expect(page.locator(".rail")).to_contain_text("Chat")
    await page.get_by_role("button", name="Theme").click()
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.keyboard.press("Alt+2")
    await page.wait_for_url("**/#/memory")
    await page.set_viewport_size({"width": 360, "height": 720})
    for view in ("chat", "memory", "search", "library", "jobs", "usage"):
        await page.goto(f"{url}/#/{view}")
        await page.wait_for_selector("main > *")
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, view
        if view in ("chat", "memory"):
            await _shot(page, f"console-narrow-dark-{view}")
    await page.get_by_role("button", name="Theme").click()


async def test_text_of_users_is_never_html(page: Any, url: str, fake_llm: FakeLlm) -> None:
    evil = "<img src=x onerror=document.title='pwned'> **粗** `code`"
    fake_llm.on("onerror", llm.text(evil))
    await page.fill(".composer textarea", evil)
    await page.keyboard.press("Enter")
    await expect(page.locator(".msg.bot .prose strong")).to_have_text("粗")
    await expect(page.locator(".msg.bot .prose")).to_contain_text("<img src=x")
    assert await page.locator(".msg img[src=x]").count() == 0
    assert "pwned" not in await page.title()


async def test_a_wrong_key_is_asked_for_again(browser: Any, url: str) -> None:
    context = await browser.new_context(locale="en-GB")
    page = await context.new_page()
    await page.goto(url)
    await page.fill("dialog input[type=password]", "nl_" + "x" * 43)
    await page.click("dialog .btn.primary")
    await expect(page.locator("dialog .tag.bad")).to_be_visible()
    await context.close()


async def test_a_link_replaces_no_key_that_is_in_use_unasked(
    page: Any, url: str, client: Client
) -> None:
    def shown() -> Any:
        return page.evaluate(
            "[sessionStorage.getItem('nianlun-key'), localStorage.getItem('nianlun-key')]"
        )

    own, other = client.tenant.key, "nl_" + "x" * 43
    await page.evaluate("key => localStorage.setItem('nianlun-key', key)", own)
    for link in (f"#/chat?key={other}", f"#key={other}"):
        await page.evaluate("hash => { location.hash = hash; }", link)
        await expect(page.locator("dialog h1")).to_have_text("换用另一把密钥？")
        assert await page.evaluate("location.hash") == "#/chat"
        await page.click("dialog button[type=button]")
        await expect(page.locator("dialog")).to_have_count(0)
        assert await shown() == [own, own]
    await page.goto("about:blank")
    await page.goto(f"{url}/#key={other}")
    await page.keyboard.press("Escape")
    await expect(page.locator(".composer textarea")).to_be_visible()
    assert await shown() == [own, own]
    await page.goto("about:blank")
    await page.goto(f"{url}/#key={other}")
    await page.click("dialog .btn.danger")
    await expect(page.locator("dialog")).to_have_count(1)
    # The other one is not valid, so that it is asked for; nothing of the first is left behind.
    await expect(page.locator("dialog h1")).to_have_text("连接年轮")
    assert await shown() == [None, None]
    await page.fill("dialog input[type=password]", own)
    await page.check("dialog input[type=checkbox]")
    await page.click("dialog .btn.primary")
    await expect(page.locator("dialog")).to_have_count(0)
    assert await shown() == [own, own]
    await page.get_by_role("button", name="密钥").click()
    await expect(page.locator("dialog input[type=checkbox]")).to_be_checked()
    await page.uncheck("dialog input[type=checkbox]")
    await page.click("dialog .btn.primary")
    await expect(page.locator("dialog")).to_have_count(0)
    assert await shown() == [own, None]


@pytest.mark.parametrize("broken", ["%", "%E0%A4%A", ""])
async def test_a_broken_key_in_the_address_changes_nothing(
    page: Any, url: str, client: Client, broken: str
) -> None:
    await page.goto("about:blank")
    await page.goto(f"{url}/#key={broken}")
    await expect(page.locator(".toast.bad")).to_have_text("密钥无效")
    await expect(page.locator(".composer textarea")).to_be_visible()
    kept = await page.evaluate("sessionStorage.getItem('nianlun-key')")
    assert kept == client.tenant.key


async def test_one_document_is_summarised_and_its_recommendation_judged(
    page: Any, url: str, client: Client, fake_llm: FakeLlm
) -> None:
    fake_llm.on("陪读助手", llm.text("讲融合方式。[E1]"))
    await _upload(page, url)
    await page.set_input_files(
        "#files",
        {"name": "leases.md", "mimeType": "text/markdown", "buffer": DOCUMENT[30:].encode()},
    )
    await expect(page.locator("table tbody tr")).to_have_count(2)
    for number, title in enumerate(("fusion.md", "leases.md")):
        await page.goto(f"{url}/#/library")
        row = page.locator("table tbody tr").filter(has_text=title)
        await row.get_by_role("button", name="问这份").click()
        await page.get_by_role("button", name="总结", exact=True).click()
        await expect(page.locator(".msg.bot .judge")).to_have_count(1)
        if number == 0:
            await _readings_ready(client)
    related = page.locator(".trace .related")
    await expect(related).to_have_count(1)
    await related.get_by_role("button", name="没用").click()
    await expect(related.get_by_role("button", name="没用")).to_have_attribute(
        "aria-pressed", "true"
    )
    read = await client.memory.ListReadings(m.ListReadingsRequest(user_id="u_001"))
    weights = {one.document_id: one.weight for one in read.readings}
    assert weights["fusion.md"] < 1 == weights["leases.md"]
    await page.get_by_role("button", name="不限定文档").click()
    await expect(page.locator(".composer .document")).to_have_count(0)
    for view in ("jobs", "usage"):
        await page.goto(f"{url}/#/{view}")
        await expect(page.locator("main table").first).to_be_visible()
        await _shot(page, f"console-{view}")
    await page.get_by_role("button", name="看过程").first.click()
    await expect(page.locator("dialog .steps li.ok")).not_to_have_count(0)
    await expect(page.locator("dialog .quote")).to_contain_text("讲融合方式")


@pytest.mark.parametrize("endless", [False, True])
async def test_usage_counts_all_chats_of_its_days_or_says_how_many(
    page: Any, url: str, endless: bool
) -> None:
    today = datetime.now(UTC)
    counted = {"prompt_tokens": "10", "completion_tokens": "1"}
    asked: list[str] = []

    async def list_runs(route: Any) -> None:
        """Two pages of these days, then one of long ago, or the first page for ever."""
        token = route.request.post_data_json["page_token"]
        asked.append(token)
        back = timedelta(days=0 if endless else {"": 0, "2": 1, "3": 40}[token])
        run = {
            "run_id": "r", "user_id": "u", "intent": "INTENT_CHAT", "save_state": "saved",
            "create_time": (today - back).isoformat(), "usage": counted, "degradations": [],
        }  # fmt: skip
        following = "2" if endless else {"": "2", "2": "3", "3": "4"}[token]
        await route.fulfill(json={"runs": [run] * 200, "next_page_token": following})

    await page.route("**/api/orchestrator/ListRuns", list_runs)
    await page.goto(f"{url}/#/usage")
    await expect(page.locator("main table").last.locator("tbody tr")).to_have_count(100)
    chats = 5_000 if endless else 400
    assert asked == ([""] + ["2"] * 24 if endless else ["", "2", "3"])
    told = await page.locator(".stat b").all_inner_texts()
    assert [int(re.sub(r"\D", "", text)) for text in told[2:]] == [chats * 10, chats]
    columns = await page.locator(".days > div").evaluate_all("all => all.map(one => one.title)")
    by_day = [int(re.sub(r"\D", "", title.split(": ")[1].rsplit(", ", 1)[0])) for title in columns]
    assert sum(by_day) == chats * 11
    await expect(page.locator("#counted")).to_have_count(int(endless))
    if endless:
        assert re.sub(r"\D", "", await page.inner_text("#counted")) == "5000"


async def _readings_ready(client: Client) -> None:
    async with asyncio.timeout(20):
        while True:
            found = await client.memory.ListReadings(m.ListReadingsRequest(user_id="u_001"))
            if found.readings and all(
                one.vector_state == m.VECTOR_STATE_READY for one in found.readings
            ):
                return
            await asyncio.sleep(0.05)


async def test_an_upload_of_the_wrong_kind_is_refused_at_once(page: Any, url: str) -> None:
    await _upload(page, url)
    await page.set_input_files(
        "#files", {"name": "x.exe", "mimeType": "application/x-msdownload", "buffer": b"MZ"}
    )
    await expect(page.locator(".toast.bad")).to_contain_text("x.exe")
    await expect(page.locator("table tbody tr")).to_have_count(1)


async def test_nothing_is_fetched_from_elsewhere(page: Any, url: str) -> None:
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    for view in ("chat", "memory", "search", "library", "jobs", "usage"):
        await page.goto(f"{url}/#/{view}")
        await page.wait_for_selector("main > *")
    await page.reload()
    await page.wait_for_selector("main > *")
    assert hosts == {url.split("/")[2]}


async def test_the_keyboard_alone_reaches_everything(page: Any, fake_llm: FakeLlm) -> None:
    fake_llm.on("键盘", llm.text("好。"))
    await page.keyboard.type("只用键盘。")
    await page.keyboard.press("Enter")
    await expect(page.locator(".msg.bot .judge")).to_have_count(1)
    await page.keyboard.press("Alt+2")
    await page.wait_for_url("**/#/memory")
    await expect(page.locator("#view")).to_be_focused()
    seen = set()
    for _ in range(40):
        await page.keyboard.press("Tab")
        focused = "document.activeElement.textContent || document.activeElement.id"
        seen.add(await page.evaluate(focused))
    assert {"档案", "记事", "导出", "添加", "跳到内容"} <= seen
