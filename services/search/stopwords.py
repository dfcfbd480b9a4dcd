"""Stop words of the tokenizer `tok/v1`: part of its version, so never edited in place.

Only words that carry no subject are listed. Negations, numbers and question words that name a
kind of answer ("who", "多少") stay out of the Chinese list when they could be part of a compound.
"""

from __future__ import annotations

from typing import Final

_ENGLISH: Final = """
    a about above after again all also am an and any are aren as at be because been before being
    below between both but by can could couldn d did didn do does doesn doing don down during each
    few for from further had hadn has hasn have haven having he her here hers herself him himself
    his how i if in into is isn it its itself just ll m me more most my myself no nor not now of
    off on once only or other our ours ourselves out over own re s same she should shouldn so some
    such t than that the their theirs them themselves then there these they this those through to
    too under until up ve very was wasn we were weren what when where which while who whom why
    will with won would wouldn you your yours yourself yourselves
    """
_CHINESE: Final = """
    的 了 和 是 在 我 你 他 她 它 们 这 那 就 都 而 及 与 或 也 还 又 很 被 把 让 给 对 从 向 到
    于 以 为 之 其 吗 呢 吧 啊 呀 哦 嗯 嘛 哪 么 着 过 地 得 个 们 请 问 能 会 可 要 想 有 没 不
    上 下 里 中 等 但 并 所 因 我们 你们 他们 她们 它们 这个 那个 这些 那些 这样 那样 什么 怎么
    怎样 如何 哪个 哪些 哪里 为什么 是否 是不是 有没有 能不能 可以 可不可以 因为 所以 但是 如果
    虽然 而且 或者 以及 还是 就是 不是 没有 一个 一下 一些 请问 的话 的是 了吗 是什么 什么是
    怎么样
"""
ENGLISH: Final[frozenset[str]] = frozenset(_ENGLISH.split())
CHINESE: Final[frozenset[str]] = frozenset(_CHINESE.split())
