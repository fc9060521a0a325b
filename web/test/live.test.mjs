import assert from "node:assert/strict";
import { test } from "node:test";
import { address, takeToken } from "../src/api.js";
import { backOff, eventParser } from "../src/events.js";
import { foldParts, onCard, partsOf } from "../src/memory.js";
import { hashOf, parseHash } from "../src/route.js";
import { linePoints, withSample } from "../src/samples.js";

function parse(...chunks) {
  const seen = [];
  const feed = eventParser((name, data) => seen.push([name, data]));
  chunks.forEach(feed);
  return seen;
}

test("events are the same however the stream is cut", () => {
  const stream = ': hello\n\nevent: now\ndata: {"a":1}\n\ndata: two\r\ndata:  lines\r\n\r\nevent: none\n\n';
  const wanted = [["now", '{"a":1}'], ["message", "two\n lines"]];
  assert.deepEqual(parse(stream), wanted);
  assert.deepEqual(parse(...stream), wanted);
  for (let cut = 1; cut < stream.length; cut += 1) {
    assert.deepEqual(parse(stream.slice(0, cut), stream.slice(cut)), wanted, `cut at ${cut}`);
  }
});

test("an endless line is refused", () => {
  const feed = eventParser(() => {});
  const chunk = "x".repeat(1 << 20);
  assert.throws(() => {
    for (let i = 0; i < 6; i += 1) feed(chunk);
  }, /too long/);
});

test("tries become rarer, up to 15 s", () => {
  assert.deepEqual([0, 1, 2, 3, 4, 50].map((tries) => backOff(tries, 0)), [1, 2, 4, 8, 15, 15]);
  assert.equal(backOff(0, 0.5), 0.9);
});

test("a token leaves the address and keeps the screen", () => {
  const kept = {};
  const storage = { setItem: (key, value) => (kept[key] = value) };
  assert.equal(takeToken("#token=a%2Bb", storage), "#/now");
  assert.deepEqual(kept, { "tandem-token": "a+b" });
  assert.equal(takeToken("#/plan?users=3&token=c", storage), "#/plan?users=3");
  assert.equal(takeToken("#/plan?users=3", storage), "#/plan?users=3");
});

test("an address has the choices of its screen", () => {
  assert.deepEqual(parseHash("#/people?by=day"), { screen: "people", query: { by: "day" } });
  assert.equal(parseHash("#/nowhere").screen, "now");
  assert.equal(hashOf("people", { by: "a&b", since: "" }), "#/people?by=a%26b");
  assert.equal(address("report", { by: "user", until: null }), "api/v1/report?by=user");
});

test("a minute of samples is kept, of each GPU", () => {
  let samples = {};
  for (let at = 0; at <= 90; at += 1) {
    samples = withSample(samples, { gpus: [{ uuid: "a", utilisation: at ? 0.5 : null }, { uuid: "b", utilisation: 7 }] }, at);
  }
  assert.equal(samples.a.length, 60);
  assert.equal(samples.a[0].at, 31);
  assert.equal(samples.b[0].value, 1);
  assert.equal(linePoints([{ at: 30, value: 1 }, { at: 60, value: 0 }], 60, 200, 40), "100.0,0.0 200.0,40.0");
  assert.deepEqual(Object.keys(withSample(samples, { gpus: [] }, 91)), []);
});

test("the parts of a card's memory add up", () => {
  const gpu = { index: 0, context_bytes: 8, free_bytes: 60, foreign_bytes: 5, card_bytes: 128 };
  const one = { id: 1, gpu: 0, name: "a", resident_bytes: 10, fixed_bytes: 2, contexts: 1 };
  const sessions = [one, { ...one, id: 2, resident_bytes: 30 }, { ...one, id: 3, gpu: 1 }];
  assert.equal(onCard(one, gpu), 20);
  const parts = partsOf(gpu, sessions);
  assert.deepEqual(parts.map((part) => [part.kind, part.bytes]), [
    ["session", 40], ["session", 20], ["foreign", 5], ["free", 60], ["reserved", 3],
  ]);
  assert.deepEqual(foldParts(parts, 1).map((part) => [part.name, part.bytes]), [
    ["2 others", 60], ["outside Tandem", 5], ["free", 60], ["reserved", 3],
  ]);
  assert.equal(foldParts(parts, 2), parts);
});
