import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../src/format.js";

test("bytes have at most three digits and never roll over to 1024", () => {
  assert.equal(format.bytes(0), "0 B");
  assert.equal(format.bytes(999), "999 B");
  assert.equal(format.bytes(1000), "0.98 KiB");
  assert.equal(format.bytes(160 << 20), "160 MiB");
  assert.equal(format.bytes(1023.9 * 2 ** 20), "1 GiB");
  assert.equal(format.bytes(25.25 * 2 ** 30), "25.3 GiB");
  assert.equal(format.bytes(null), "–");
});

test("seconds take the unit that a person would", () => {
  const texts = [0, 0.166, 3.3, 13.4, 119.6, 201, 7200, 90061, 200000].map(format.seconds);
  assert.deepEqual(texts, [
    "0 s", "166 ms", "3.3 s", "13 s", "2 min", "3 min 21 s", "2 h", "25 h 1 min", "2 days 8 h",
  ]);
  assert.equal(format.seconds(undefined), "–");
});

test("a small part is not shown as nothing", () => {
  assert.equal(format.percent(0), "0 %");
  assert.equal(format.percent(0.004), "<1 %");
  assert.equal(format.percent(0.386), "39 %");
  assert.equal(format.percent(null), "–");
});

test("times of other days have the day", () => {
  const now = new Date(2026, 10, 26, 14, 0);
  assert.equal(format.moment(new Date(2026, 10, 26, 9, 5), now), "09:05");
  assert.equal(format.moment(new Date(2026, 10, 25, 9, 5), now), "Nov 25, 09:05");
  assert.equal(format.localInput(new Date(2026, 0, 2, 3, 4)), "2026-01-02T03:04");
  assert.equal(format.rfc3339(0), "1970-01-01T00:00:00Z");
});

test("an interval of an address is one that has dates", () => {
  assert.deepEqual(format.interval("1", "2"), [1, 2]);
  for (const [from, to] of [["2", "1"], ["x", "2"], [undefined, "2"], ["1", "9999999999999"], ["1", "Infinity"]]) {
    assert.equal(format.interval(from, to), null, `${from} ${to}`);
  }
});
