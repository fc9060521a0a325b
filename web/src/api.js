// The HTTP interface of `tandem serve`, version 1.

import { backOff, eventParser } from "./events.js";

const KEY = "tandem-token";
const SILENCE_MS = 20000; // the server sends something at least every 15 s

/** Takes the token out of `#token=...` into this tab's storage, and returns the rest of the address. */
export function takeToken(hash, storage) {
  const match = /^#(.*?)[#&?]?token=([^&]+)(.*)$/.exec(hash);
  if (!match) return hash;
  storage.setItem(KEY, decodeURIComponent(match[2]));
  return `#${match[1] || "/now"}${match[3]}`;
}

function headers() {
  const token = sessionStorage.getItem(KEY);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value != null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `api/v1/${path}${text ? `?${text}` : ""}`;
}

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

async function ask(path, parameters, signal) {
  let response;
  try {
    response = await fetch(address(path, parameters), { headers: headers(), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server does not answer. Is `tandem serve` running?", 0);
  }
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  throw new ServerError(answer.error ?? `The server answered with status ${response.status}.`, response.status);
}

export async function get(path, parameters, signal) {
  return (await ask(path, parameters, signal)).json();
}

/** Lets the browser save the answer. By fetch() since a link cannot send a token. */
export async function download(path, parameters, name) {
  const blob = await (await ask(path, parameters)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/**
 * Follows /api/v1/live until the returned function is called. onEvent(object); onState({kind, ...}) with
 * kind "connecting", "live", "lost" ({error, retry_s}) or "refused" ({error}).
 */
export function follow(onEvent, onState) {
  const ending = new AbortController();
  let tries = 0;

  async function once() {
    const attempt = new AbortController();
    const abort = () => attempt.abort();
    ending.signal.addEventListener("abort", abort);
    let timer = setTimeout(abort, SILENCE_MS);
    try {
      const response = await ask("live", {}, attempt.signal);
      const parse = eventParser((name, data) => {
        if (name !== "now") return;
        onEvent(JSON.parse(data));
        if (tries !== -1) onState({ kind: "live" });
        tries = -1;
      });
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(timer);
        timer = setTimeout(abort, SILENCE_MS);
        parse(decoder.decode(value, { stream: true }));
      }
      throw new ServerError("The server closed the connection.", 0);
    } finally {
      clearTimeout(timer);
      ending.signal.removeEventListener("abort", abort);
      attempt.abort();
    }
  }

  async function run() {
    onState({ kind: "connecting" });
    while (!ending.signal.aborted) {
      try {
        await once();
      } catch (error) {
        if (ending.signal.aborted) return;
        if (error.status === 401 || error.status === 403) return onState({ kind: "refused", error: error.message });
        tries = Math.max(0, tries);
        const wait = backOff(tries, Math.random());
        tries += 1;
        const message = error.status === undefined ? "The server does not answer." : error.message;
        onState({ kind: "lost", error: message, retry_s: wait });
        await pause(wait, ending.signal);
      }
    }
  }

  run();
  return () => ending.abort();
}

/** Waits that long, or until the network or the tab comes back. */
function pause(wait, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, wait * 1000);
    function done() {
      clearTimeout(timer);
      window.removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      resolve();
    }
    window.addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}
