// What the console remembers: in this tab the key, in this browser the rest.

const DEFAULTS = { user: "u_001", session: "", collection: "", theme: "", lang: "", memory: true, retrieval: true,
  tools: true, verify: false, intent: "", document: "", documentTitle: "" };
const stored = JSON.parse(localStorage.getItem("nianlun") || "{}");

export const state = { ...DEFAULTS, ...stored };
state.lang ||= navigator.language.startsWith("zh") ? "zh" : "en";
state.theme ||= matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
state.session ||= newSession();

export function save(change) {
  Object.assign(state, change);
  localStorage.setItem("nianlun", JSON.stringify(state));
}

export function newSession() {
  const now = new Date().toISOString().slice(0, 16).replace(/[-:T]/g, "");
  return `s-${now}-${Math.random().toString(36).slice(2, 6)}`;
}

export const key = {
  get: () => sessionStorage.getItem("nianlun-key") || localStorage.getItem("nianlun-key") || "",
  set(value, keep) {
    sessionStorage.setItem("nianlun-key", value);
    if (keep) localStorage.setItem("nianlun-key", value);
    else localStorage.removeItem("nianlun-key");
  },
  kept: () => Boolean(localStorage.getItem("nianlun-key")),
  clear() {
    sessionStorage.removeItem("nianlun-key");
    localStorage.removeItem("nianlun-key");
  },
};

export const requestId = () => crypto.randomUUID?.() || `${Date.now()}-${Math.random().toString(36).slice(2)}`;
