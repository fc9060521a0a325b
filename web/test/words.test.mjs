import assert from "node:assert/strict";
import { test } from "node:test";
import { inOrder, stateKind, why } from "../src/words.js";

const film = { id: 2, gpu: 0, name: "film-1", state: "running", held_by: [] };
const waiter = {
  id: 1, gpu: 0, name: "mnist", state: "waiting", reason_code: "turn", reason: "2nd in line",
  place: 2, expected_wait_s: 40, held_by: [2],
};

test("a session in line hears its position, the time and the holder", () => {
  assert.equal(why(waiter, [film, waiter]), "position 2, about 40 s, film-1 holds the card");
});

test("what is unknown is left out", () => {
  const plain = { ...waiter, expected_wait_s: null, held_by: [] };
  assert.equal(why(plain, [plain]), "position 2");
  assert.equal(why({ ...waiter, held_by: [9] }, [waiter]), "position 2, about 40 s, session 9 holds the card");
  assert.equal(why({ ...waiter, held_by: [2, 3, 4] }, [film]), "position 2, about 40 s, film-1 and 2 others hold the card");
});

test("other reasons are the daemon's words", () => {
  const short = { ...waiter, reason_code: "host_memory", reason: "host memory is short", place: null, expected_wait_s: null };
  assert.equal(why(short, [film]), "host memory is short, film-1 holds the card");
  const refused = { ...film, reason_code: "limit_refused", reason: "its limit is reached" };
  assert.equal(why(refused, []), "its limit is reached");
});

test("a suspended session says how to go on, a running one nothing", () => {
  assert.match(why({ ...film, state: "suspended" }, []), /`tandem resume film-1`/);
  assert.equal(why(film, []), "");
});

test("sessions that keep others waiting come first, then running, waiting by place, idle", () => {
  const idle = { ...film, id: 7, state: "idle" };
  const stuck = { ...film, id: 8, state: "stuck" };
  const first = { ...waiter, id: 9, place: 1 };
  const ids = inOrder([idle, waiter, first, film, stuck]).map((each) => each.id);
  assert.deepEqual(ids, [8, 2, 9, 1, 7]);
  assert.equal(stateKind({ ...film, blocks_since: "2026-11-26T00:00:00Z" }), "bad");
});
