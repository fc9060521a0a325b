import assert from "node:assert/strict";
import { test } from "node:test";
import { hours } from "../src/format.js";
import { choicesOf, lastWeek, nearest, parametersOf, PAUSES } from "../src/planning.js";
import { figures, hasData, linesOf, rowsOf, zoomed } from "../src/series.js";

const series = (key, held) => ({
  key, held_s: held, active_s: held, waited_s: held,
  allocated_bytes: held, resident_bytes: held, swapped_bytes: held,
});

test("a chart has eight lines at most, and their sum is that of all series", () => {
  const many = Array.from({ length: 12 }, (_, index) => series(`user${index}`, [index, null, 10]));
  const answer = { step_s: 10, times: [0, 10, 20], series: many };
  const lines = linesOf(answer, "utilisation");
  assert.equal(lines.length, 8);
  assert.equal(lines[7].name, "5 others");
  const sum = (at) => lines.reduce((total, line) => total + (line.values[at] ?? 0), 0);
  assert.ok(Math.abs(sum(0) - 66 / 10) < 1e-9);
  assert.equal(lines[7].values[1], null);
  assert.equal(new Set(lines.map((line) => line.colour)).size, 8);
  assert.equal(linesOf({ ...answer, series: many.slice(0, 8) }, "waiting").length, 8);
});

test("steps without data are no zeros", () => {
  assert.deepEqual(figures([null, 2, 4, null], [0, 10, 20, 30]), { mean: 3, most: 4, at: 20 });
  assert.equal(figures([null], [0]).mean, null);
  assert.equal(hasData({ series: [series("a", [null, null])] }), false);
  assert.equal(hasData({ series: [series("a", [null, 0])] }), true);
});

test("a table has the means of neighbouring steps", () => {
  const rows = rowsOf([0, 1, 2, 3, 4], [{ values: [1, 3, 5, null, 8] }], 3);
  assert.deepEqual(rows, [{ at: 0, values: [2] }, { at: 2, values: [5] }, { at: 4, values: [8] }]);
});

test("a zoom keeps its middle, its least width and the present", () => {
  assert.deepEqual(zoomed([1000, 2000], 0.5, 0, 9000), [1250, 1750]);
  assert.deepEqual(zoomed([1000, 2000], 1, -0.25, 9000), [750, 1750]);
  assert.deepEqual(zoomed([1000, 2000], 2, 0, 2000), [0, 2000]);
  assert.deepEqual(zoomed([1000, 1010], 0.5, 0, 9000), [975, 1035]);
});

test("choices from an address are possible ones", () => {
  assert.equal(choicesOf({}).users, 10);
  assert.equal(choicesOf({ users: "1e9", burst: "x", memory: "20G; rm" }).users, 10);
  assert.equal(choicesOf({ memory: "20G" }).memory, "20G");
  assert.equal(choicesOf({ memory: "20G; rm" }).memory, "0");
  assert.equal(parametersOf(choicesOf({ pause: "450" })).edit, "450s");
  assert.equal(PAUSES[nearest(PAUSES, 400)], 450);
});

test("last week's pause gives last week's use", () => {
  const report = {
    since: "2026-11-19T00:00:00Z", until: "2026-11-26T00:00:00Z", gpus: ["a", "b"],
    rows: [{ active_s: 5 }, { active_s: 7 }, { active_s: 1 }, { active_s: 0 }],
    sum: { held_s: 604800, active_s: 604800 / 2, waited_s: 302400, share: 0.5 },
  };
  const week = lastWeek(report, 30);
  assert.deepEqual([week.users, week.gpus, week.busy, week.waited], [3, 2, 0.25, 0.5]);
  assert.equal((3 * 30) / (30 + week.pause) / 2, 0.25);
  assert.equal(lastWeek({ ...report, rows: [] }, 30), null);
});

test("sums of time compare", () => {
  assert.deepEqual([59, 7199, 7200, 273600].map(hours), ["59 s", "119 min 59 s", "2.0 h", "76.0 h"]);
});
