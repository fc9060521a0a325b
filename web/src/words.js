// Why a session does not run, in words, from an answer of the daemon.

import { count, seconds } from "./format.js";

const STATES = {
  unused: "no GPU used yet",
  idle: "idle",
  waiting: "waits",
  restoring: "memory comes back",
  running: "runs",
  releasing: "finishes",
  suspending: "memory leaves",
  suspended: "suspended",
  stuck: "does not answer",
};

export const stateWord = (session) => STATES[session.state] ?? String(session.state);

/** The colour of a state: one of the classes state-* of page.css. */
export function stateKind(session) {
  if (session.state === "stuck" || session.blocks_since) return "bad";
  if (session.state === "running") return "good";
  if (session.state === "suspended" || session.state === "suspending") return "off";
  if (session.state === "idle" || session.state === "unused") return "quiet";
  return "wait";
}

export const userOf = (session) => session.user ?? (session.uid == null ? "–" : String(session.uid));

export function holdersOf(gpu, sessions) {
  return (gpu.holders ?? []).map((id) => sessions.find((each) => each.id === id)).filter(Boolean);
}

function holders(session, sessions) {
  const held = session.held_by ?? [];
  if (held.length === 0) return null;
  const first = sessions.find((each) => each.id === held[0]);
  const name = first ? first.name : `session ${held[0]}`;
  if (held.length === 1) return `${name} holds the card`;
  return `${name} and ${count(held.length - 1, "other", "others")} hold the card`;
}

/** Such as "position 2, about 40 s, film-1 holds the card"; "" where nothing keeps it from running. */
export function why(session, sessions) {
  if (session.state === "suspended" || session.state === "suspending") {
    return `suspended by an order; \`tandem resume ${session.name}\` continues it`;
  }
  if (session.reason == null && session.state !== "waiting") {
    return session.state === "stuck" ? "its process does not answer; it may be stopped" : "";
  }
  const parts = [];
  const turn = session.reason_code === "turn" && session.place != null;
  if (turn) parts.push(`position ${session.place}`);
  else parts.push(session.reason ?? "it is held back");
  if (session.expected_wait_s != null) parts.push(`about ${seconds(Math.max(1, Math.round(session.expected_wait_s)))}`);
  const who = holders(session, sessions);
  if (who) parts.push(who);
  return parts.join(", ");
}

const ORDER = { bad: 0, good: 1, wait: 2, off: 3, quiet: 4 };

/** Running ones first, then those that wait, in their order of service, then the others. */
export function inOrder(sessions) {
  const rank = (each) => [ORDER[stateKind(each)], each.gpu ?? 0, each.place ?? 1e9, each.id ?? 0];
  return [...sessions].sort((a, b) => {
    const [left, right] = [rank(a), rank(b)];
    const at = left.findIndex((value, index) => value !== right[index]);
    return at < 0 ? 0 : left[at] - right[at];
  });
}
