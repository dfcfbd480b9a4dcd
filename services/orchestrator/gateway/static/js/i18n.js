// Words of the console in Chinese and English.

const WORDS = {
  product: ["年轮", "Nianlun"], tagline: ["记忆与检索", "memory & retrieval"],
  chat: ["对话", "Chat"], memory: ["记忆", "Memory"], search: ["检索", "Search"], library: ["资料库", "Library"],
  jobs: ["任务", "Jobs"], usage: ["用量", "Usage"], language: ["语言 Language", "Language 语言"], theme: ["明暗", "Theme"],
  key: ["密钥", "Key"], keyTitle: ["连接年轮", "Connect to Nianlun"],
  keyHelp: ["粘贴密钥。本机启动时它在 .nianlun/key 里。", "Paste a key. On a local stack it stands in .nianlun/key."],
  keyKeep: ["在这台设备上记住", "Remember on this device"], keyWrong: ["密钥无效", "This key is not valid"],
  keyOther: ["换用另一把密钥？", "Use another key?"], keyReplace: ["换用", "Use it"],
  keyOtherHelp: ["这个链接带来了另一把密钥。换用后，你上传和输入的内容都会进入那把密钥所属的空间；链接不是你自己的就不要换。", "This link brings another key. With it, whatever you upload or type goes to the owner of that key: decline unless the link is yours."],
  connect: ["连接", "Connect"], user: ["用户", "User"], session: ["会话", "Session"], collection: ["资料库", "Collection"],
  none: ["不使用", "none"], intent: ["意图", "Intent"], auto: ["自动", "automatic"],
  intent_chat: ["对话", "chat"], intent_doc: ["文档问答", "document question"], intent_summary: ["个性化总结", "personalised summary"],
  intent_plan: ["结构化计划", "structured plan"], intent_extract: ["信息提取", "extract"],
  useMemory: ["记忆", "memory"], useRetrieval: ["检索", "retrieval"], useTools: ["工具", "tools"], useVerify: ["核对", "verify"],
  newSession: ["新会话", "New session"], endSession: ["结束会话", "End session"], sessionEnded: ["会话已结束，正在整理", "Session ended, digesting"],
  ask: ["说点什么… Enter 发送，Shift+Enter 换行", "Say something… Enter sends, Shift+Enter breaks the line"],
  send: ["发送", "Send"], stop: ["停止", "Stop"], welcome: ["今天想聊什么？我会记得。", "What is on your mind? I will remember."],
  starter1: ["我叫林晓雨，是前端工程师，回答请简短一点", "My name is Lin and I'm a front-end engineer. Please keep answers short."],
  starter2: ["上次说的那个方案叫什么来着？", "What was that option we settled on last time?"],
  starter3: ["这个资料库讲了什么？", "What is in this collection?"],
  trace: ["过程", "Trace"], timeline: ["步骤", "Steps"], sources: ["资料", "Sources"], memories: ["用到的记忆", "Memory used"],
  leftOut: ["未用到", "Left out"], tokens: ["提示词", "Prompt"], notYet: ["发一条消息，过程会显示在这里。", "Send a message and the trace appears here."],
  t_memory: ["记忆", "memory"], t_evidence: ["资料", "sources"], t_history: ["历史", "history"], t_rest: ["其余", "rest"],
  wholeDocs: ["整篇文档要", "whole documents would take"], saved: ["节省", "saved"], stopped: ["已停止", "stopped"],
  useful: ["有用", "Useful"], notUseful: ["没用", "Not useful"], thanks: ["谢谢，记下了", "Thank you, noted"], cited: ["已引用", "cited"],
  openContext: ["看上下文", "Show its context"], score: ["得分", "score"], why: ["原因", "why"], options: ["选项", "Options"],
  memoryLead: ["这里是系统记得的全部内容：可以查看来历、改正、遗忘。", "Everything that is remembered: see where it came from, correct it, forget it."],
  facts: ["档案", "Profile"], notes: ["记事", "Notes"], summaries: ["摘要", "Summaries"], turns: ["原话", "Turns"], readings: ["读物", "Readings"],
  preference: ["偏好", "preference"], fact: ["事实", "fact"], since: ["自", "since"], until: ["至", "until"], sourcesN: ["处来源", "sources"], source1: ["处来源", "source"],
  correct: ["改正", "Correct"], forget: ["遗忘", "Forget"], historyOf: ["来历", "History"], asOf: ["回到某天", "As of"], now: ["现在", "now"],
  newValue: ["正确的值", "The right value"], apply: ["确定", "Apply"], cancel: ["取消", "Cancel"], corrected: ["已改正", "Corrected"],
  forgotten: ["已遗忘", "Forgotten"], forgetText: ["遗忘后不会再从旧对话里提取出来。", "It will not be extracted from old conversations again."],
  purge: ["连历史一起删除", "delete its history too"], addFact: ["添加", "Add"], attribute: ["属性，如 city", "attribute, e.g. city"], value: ["值", "value"],
  noFacts: ["还没有档案。聊几句就有了。", "Nothing yet. Talk a little first."], noItems: ["这里还是空的。", "Nothing here yet."],
  exportAll: ["导出", "Export"], eraseAll: ["抹去此用户", "Erase this user"], eraseTitle: ["抹去全部记忆", "Erase everything"],
  eraseText: ["会删除对话、档案、记事、摘要、读物与向量，不可恢复。请输入用户名确认。", "Conversations, profile, notes, summaries, readings and vectors are deleted for good. Type the user's name to confirm."],
  erased: ["已抹去，回执", "Erased, receipt"], searchNotes: ["在记事里找…", "Search the notes…"],
  origin_llm: ["模型提取", "by model"], origin_rules: ["规则提取", "by rules"], origin_caller: ["人工", "by hand"],
  searchLead: ["看清每条结果的分数从哪里来。", "See where each score comes from."], query: ["问题", "Question"], recipe: ["方案", "Recipe"],
  topK: ["条数", "Results"], run: ["检索", "Search"], confidence: ["置信度", "Confidence"], heldBack: ["被拦下", "held back"], gate: ["门控", "gate"],
  fused: ["融合", "fused"], rerank: ["重排", "rerank"], finalScore: ["总分", "final"], nothing: ["没有相关内容：这也是一个回答。", "Nothing relevant: that is an answer too."],
  terms: ["词", "Terms"], timings: ["耗时", "Timings"], pickCollection: ["先选一个资料库", "Pick a collection first"], noCollections: ["还没有资料库", "none yet"], addCollection: ["先到资料库里新建一个", "Make a collection in the library first"], expand: ["展开", "Expand"],
  libraryLead: ["放进来的文档会被切分、索引、向量化。", "Documents are chunked, indexed and embedded."], create: ["新建", "Create"],
  newCollection: ["新资料库的名字（小写字母、数字、-）", "Name of the new collection (a-z, 0-9, -)"], documents: ["文档", "documents"], chunks: ["片段", "chunks"],
  drop: ["把文件拖到这里，或", "Drop files here, or"], choose: ["选择文件", "choose files"], kinds: ["文本、Markdown、HTML、PDF，每个最大 12 MiB", "Text, Markdown, HTML, PDF, 12 MiB each at most"],
  tooLarge: ["文件太大", "File too large"], wrongKind: ["不支持的文件类型", "Unsupported kind of file"], uploading: ["上传中", "Uploading"], ingested: ["已入库", "Ingested"], remove: ["删除", "Delete"],
  removeText: ["会连同它的片段和向量一起删除。", "Its chunks and vectors go with it."], state: ["状态", "State"], title: ["标题", "Title"], size: ["字数", "Characters"],
  pending: ["待向量化", "pending vectors"], jobsLead: ["后台任务与失败的任务。", "Background work and dead letters."], kind: ["类型", "Kind"], progress: ["进度", "Progress"],
  attempts: ["尝试", "Attempts"], time: ["时间", "Time"], replay: ["重做", "Replay"], failedOnly: ["只看失败的", "failed only"], refresh: ["刷新", "Refresh"],
  usageLead: ["模型调用、词元与最近的对话。", "Model calls, tokens and recent runs."], calls: ["调用", "calls"], promptTokens: ["输入词元", "prompt tokens"],
  completionTokens: ["输出词元", "completion tokens"], layer: ["层", "Layer"], day: ["日期", "Day"], runs: ["最近的对话", "Recent runs"], duration: ["用时", "Took"],
  earlierSession: ["以前的会话", "Earlier sessions"], thisSession: ["当前", "current"], askDocument: ["问这份", "Ask it"],
  summarise: ["总结", "Summarise"], summariseIt: ["总结这份文档", "Summarise this document"], wholeCollection: ["不限定文档", "Whole collection"],
  runsCounted: ["对话的词元只统计了最近 {} 次。", "Only the tokens of the latest {} chats are counted."],
  tokensByDay: ["每天的词元（近 30 天）", "Tokens by day (30 days)"], openRun: ["看过程", "Show its trace"], related: ["相近的读物", "Related readings"], you: ["你", "You"], close: ["关闭", "Close"], unsupportedN: ["没有依据的句子", "Sentences without support"],
  thinkingOf: ["思考过程", "Thinking"], skip: ["跳到内容", "Skip to content"], fields: ["字段", "Fields"],
  firstText: ["首字", "First text"], saveState: ["保存", "Saved"], degraded: ["降级", "Degraded"], failed: ["失败", "failed"], stoppedByBudget: ["被预算拦下", "stopped by budget"],
};

// What services report by name: counts of steps, states, kinds of degradation, layers.
const TERMS = {
  hits: ["命中", "hits"], held_back: ["拦下", "held back"], confidence: ["置信度", "confidence"], tokens: ["词元", "tokens"],
  citations: ["引用", "citations"], tool_calls: ["工具调用", "tool calls"], model: ["模型", "model"], intent: ["意图", "intent"],
  how: ["方式", "how"], similar: ["相近", "similar"], earlier: ["读过", "read before"], sentences: ["句", "sentences"], unsupported: ["无依据", "unsupported"],
  profile: ["档案", "profile"], episodes: ["记事", "notes"], fresh_turns: ["原话", "recent words"], summary: ["摘要", "summary"], readings: ["读物", "readings"],
  route: ["判断意图", "Route"], load_memory: ["读取记忆", "Load memory"], retrieve: ["检索资料", "Search knowledge"],
  find_readings: ["查找相近读物", "Find similar readings"], reason: ["思考与回答", "Answer"], verify: ["核对依据", "Verify"], save_memory: ["保存记忆", "Save memory"],
  embed: ["生成向量", "embed"], digest: ["整理对话", "digest"], ingest: ["文档入库", "ingest"], summarise: ["写摘要", "summarise"], reembed: ["更换向量模型", "re-embed"],
  erase_user: ["抹去用户", "erase a user"], erase_session: ["抹去会话", "erase a session"], documents: ["文档", "documents"], memory: ["记忆", "memory"], retriever: ["检索", "retriever"],
  high: ["高", "high"], medium: ["中", "medium"], low: ["低", "low"], none: ["无", "none"], forced: ["指定", "forced"], routed: ["自动判断", "routed"],
  chat: ["对话", "chat"], document_question: ["文档问答", "document question"], personalised_summary: ["个性化总结", "personalised summary"],
  structured_plan: ["结构化计划", "structured plan"], extract: ["信息提取", "extraction"],
  paragraph: ["段落", "paragraph"], title: ["标题", "title"], abstract: ["摘要", "abstract"], table: ["表格", "table"], code: ["代码", "code"],
  list: ["列表", "list"], teaser: ["导语", "teaser"], note: ["注释", "note"],
  // Steps of a search that are timed.
  total: ["合计", "total"], embed_query: ["问题向量", "query vector"], scope: ["范围", "scope"], fetch: ["取文", "fetch"], fusion: ["融合", "fusion"],
  dense: ["向量", "dense"], lexical: ["关键词", "lexical"], phrase: ["短语", "phrase"], rerank: ["重排", "rerank"],
  ready: ["已就绪", "ready"], pending: ["等待中", "pending"], failed: ["失败", "failed"], queued: ["排队", "queued"], running: ["进行中", "running"],
  retrying: ["重试中", "retrying"], succeeded: ["完成", "done"], cancelled: ["已取消", "cancelled"], saved: ["已保存", "saved"], off: ["未保存", "off"],
  active: ["有效", "active"], superseded: ["已更替", "superseded"], retracted: ["已收回", "retracted"], ended: ["已结束", "ended"],
  budget: ["预算不够", "budget"], gate: ["不相关", "not relevant"], switched_off: ["已关闭", "switched off"],
  user: ["用户", "user"], assistant: ["助手", "assistant"], tool: ["工具", "tool"], system: ["系统", "system"],
  search_knowledge: ["检索资料", "search knowledge"], recall_memory: ["回想", "recall memory"], open_document: ["翻开文档", "open document"],
  dense_leg_skipped: ["未用向量", "no dense leg"], lexical_leg_skipped: ["未用关键词", "no lexical leg"], phrase_leg_skipped: ["未用短语", "no phrase leg"],
  rerank_skipped: ["未重排", "not reranked"], rerank_partial: ["部分重排", "partly reranked"], vectors_pending: ["向量未齐", "vectors pending"],
  retrieval_skipped: ["未检索", "no retrieval"], document_text_fallback: ["改用原文", "document text"], memory_skipped: ["未用记忆", "no memory"],
  memory_layer_skipped: ["缺一层记忆", "a layer missing"], save_pending: ["待保存", "save pending"], run_not_stored: ["未存档", "not stored"], no_llm: ["无模型", "no model"], recovered: ["已补救", "recovered"],
  rules_extraction: ["规则提取", "by rules"], citation_dropped: ["引用已删", "citation dropped"], truncated: ["已截短", "cut"], budget_stopped: ["预算已尽", "budget used up"],
  model_unhealthy: ["模型异常", "model unhealthy"], fallback_model: ["备用模型", "fallback model"], verification_skipped: ["未核对", "not verified"],
};

let index = 0;

/** The word for a name of the contract: "JOB_STATE_FAILED" with prefix "JOB_STATE_", "held_back". */
export function term(name, prefix = "") {
  const bare = String(name ?? "").replace(prefix, "").toLowerCase();
  return TERMS[bare]?.[index] ?? bare.replaceAll("_", " ");
}

export function setLanguage(code) {
  index = code === "zh" ? 0 : 1;
}

export function t(name) {
  return WORDS[name]?.[index] ?? name;
}

export function day(stamp) {
  if (!stamp) return "";
  return new Intl.DateTimeFormat(index === 0 ? "zh-CN" : "en-GB", { dateStyle: "medium" }).format(new Date(stamp));
}

export function moment(stamp) {
  if (!stamp) return "";
  return new Intl.DateTimeFormat(index === 0 ? "zh-CN" : "en-GB", { dateStyle: "short", timeStyle: "medium" }).format(new Date(stamp));
}

export function ms(value) {
  if (!value) return "0 ms";
  return value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
}

export const count = (value) => new Intl.NumberFormat().format(Number(value || 0));
