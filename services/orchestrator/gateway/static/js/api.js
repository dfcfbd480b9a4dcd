// Every RPC of the contract as JSON: call("memory", "ListFacts", {...}).

import { key } from "./state.js";

export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message || `HTTP ${status}`);
    this.status = status;
    this.code = error?.code || "";
  }
}

async function post(service, method, body, signal) {
  const response = await fetch(`/api/${service}/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key.get()}` },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) {
    const parsed = await response.json().catch(() => ({}));
    if (response.status === 401) document.dispatchEvent(new CustomEvent("unauthenticated"));
    throw new ApiError(response.status, parsed.error);
  }
  return response;
}

export async function call(service, method, body = {}) {
  return (await post(service, method, body)).json();
}

/** The messages of a response stream. Leaving the loop, or `signal`, ends the call on the server. */
export async function* stream(service, method, body, signal) {
  const response = await post(service, method, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const message = JSON.parse(part.slice(6));
        if (message.error && message.error.type) throw new ApiError(500, message.error);
        yield message;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** All pages of a list. */
export async function all(service, method, body, name, limit = 500) {
  const items = [];
  let token = "";
  do {
    const page = await call(service, method, { ...body, page_token: token });
    items.push(...page[name]);
    token = page.next_page_token;
  } while (token && items.length < limit);
  return items;
}
