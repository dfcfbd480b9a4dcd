// A small part of Markdown as DOM nodes, with citations as buttons. Never HTML from text.

import { add, h } from "./dom.js";

const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*|\[E\d{1,4}\])/;

function inline(text, onCite) {
  return text.split(INLINE).map((part) => {
    if (/^`.+`$/.test(part)) return h("code", {}, part.slice(1, -1));
    if (/^\*\*.+\*\*$/.test(part)) return h("strong", {}, part.slice(2, -2));
    if (/^\[E\d+\]$/.test(part)) {
      const id = part.slice(1, -1);
      return h("button", { class: "cite", type: "button", "aria-label": `source ${id}`, onclick: () => onCite(id) }, id);
    }
    return part;
  });
}

/** The text as blocks: paragraphs, headings, lists, code. */
export function prose(text, onCite) {
  const root = h("div", { class: "prose" });
  const lines = text.split("\n");
  let list = null;
  for (let i = 0; i < lines.length; i += 1) {
    const line = lines[i];
    if (line.startsWith("```")) {
      const code = [];
      for (i += 1; i < lines.length && !lines[i].startsWith("```"); i += 1) code.push(lines[i]);
      root.append(h("pre", {}, h("code", {}, code.join("\n"))));
      list = null;
      continue;
    }
    const item = line.match(/^\s*([-*]|\d+\.)\s+(.*)$/);
    if (item) {
      const tag = /\d/.test(item[1]) ? "ol" : "ul";
      if (!list || list.localName !== tag) { list = h(tag); root.append(list); }
      list.append(add(h("li"), inline(item[2], onCite)));
      continue;
    }
    list = null;
    const heading = line.match(/^#{1,6}\s+(.*)$/);
    if (heading) root.append(add(h("h2"), inline(heading[1], onCite)));
    else if (line.trim()) root.append(add(h("p"), inline(line, onCite)));
  }
  return root;
}

/** JSON as indented text, or null where the text is none. */
export function json(text) {
  try {
    return h("div", { class: "prose" }, h("pre", {}, h("code", {}, JSON.stringify(JSON.parse(text), null, 2))));
  } catch {
    return null;
  }
}
