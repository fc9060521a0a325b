// Answers of /api/v1/history as lines of a chart.

const COLOURS = 8;

/** What a chart draws of a series, by the name of a choice. `step` is in seconds. */
export const MEASURES = {
  utilisation: (one, step) => one.active_s.map((value) => (value == null ? null : value / step)),
  waiting: (one, step) => one.waited_s.map((value) => (value == null ? null : value / step)),
  allocated: (one) => one.allocated_bytes,
  resident: (one) => one.resident_bytes,
  swapped: (one) => one.swapped_bytes,
};

const add = (a, b) => (a == null ? b : b == null ? a : a + b);

/**
 * [{name, values, colour}] for one measure: the series with the largest sums, and "n others" for the rest.
 * All measures of an answer have the same series in the same order, so that a colour means one key.
 */
export function linesOf(answer, measure) {
  const total = (one) => one.held_s.reduce((sum, value) => sum + (value ?? 0), 0);
  const ranked = [...answer.series].sort((a, b) => total(b) - total(a));
  const most = ranked.length > COLOURS ? COLOURS - 1 : COLOURS;
  const shown = ranked.slice(0, most).sort((a, b) => (a.key < b.key ? -1 : 1));
  const values = (one) => MEASURES[measure](one, answer.step_s);
  const lines = shown.map((one, index) => ({ name: one.key || "none", values: values(one), colour: index }));
  const rest = ranked.slice(most);
  if (rest.length > 0) {
    const sums = rest.map(values).reduce((sum, next) => sum.map((value, index) => add(value, next[index])));
    lines.push({ name: `${rest.length} others`, values: sums, colour: COLOURS - 1 });
  }
  return lines;
}

/** {mean, most, at}: of the steps with data; nulls where there are none. */
export function figures(values, times) {
  let [sum, number, most, at] = [0, 0, null, null];
  values.forEach((value, index) => {
    if (value == null) return;
    sum += value;
    number += 1;
    if (most == null || value > most) [most, at] = [value, times[index]];
  });
  return { mean: number ? sum / number : null, most, at };
}

export const hasData = (answer) => answer.series.some((one) => one.held_s.some((value) => value != null));

/** At most `most` rows {at, values} with means of neighbouring steps, for a table beside a chart. */
export function rowsOf(times, lines, most) {
  const per = Math.max(1, Math.ceil(times.length / most));
  const rows = [];
  for (let begin = 0; begin < times.length; begin += per) {
    const mean = (values) => figures(values.slice(begin, begin + per), times).mean;
    rows.push({ at: times[begin], values: lines.map((line) => mean(line.values)) });
  }
  return rows;
}

/** A part of an interval: `factor` < 1 is nearer, `shift` in parts of it to the right; not after `now`. */
export function zoomed([from, to], factor, shift, now) {
  const span = Math.max(60, (to - from) * factor);
  const middle = (from + to) / 2 + shift * (to - from);
  const end = Math.min(now, middle + span / 2);
  return [end - span, end];
}
