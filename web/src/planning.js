// Sliders and numbers of the screen Plan.

/** Values of a slider for times: short ones closer to each other. */
export const BURSTS = [1, 2, 5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 600, 900, 1800, 3600];
export const PAUSES = [10, 20, 30, 60, 120, 180, 300, 450, 600, 900, 1200, 1800, 3600, 7200, 14400];

/** The place of the value that is nearest by ratio. */
export function nearest(values, value) {
  const distance = (each) => Math.abs(Math.log(each / value));
  return values.reduce((best, each, index) => (distance(each) < distance(values[best]) ? index : best), 0);
}

export const isSize = (text) => /^\d+(\.\d+)?([KMGT](i?B)?)?$/.test(text);

const between = (value, low, high, other) => {
  const number = Math.round(Number(value));
  return number >= low && number <= high ? number : other;
};

const DEFAULTS = { users: 10, gpus: 1, burst: 30, pause: 300, away: 0, stay: 7200, bound: 120 };

/** The choices in an address; what is missing or impossible is the default. */
export function choicesOf(query) {
  return {
    users: between(query.users, 1, 200, DEFAULTS.users),
    gpus: between(query.gpus, 1, 16, DEFAULTS.gpus),
    burst: between(query.burst, 1, 3600, DEFAULTS.burst),
    pause: between(query.pause, 1, 86400 * 7, DEFAULTS.pause),
    away: between(query.away, 0, 86400, DEFAULTS.away),
    stay: between(query.stay, 60, 86400, DEFAULTS.stay),
    bound: between(query.bound, 1, 86400, DEFAULTS.bound),
    memory: isSize(query.memory ?? "") ? query.memory : "0",
    card: isSize(query.card ?? "") ? query.card : "80G",
    bus: isSize(query.bus ?? "") ? query.bus : "55G",
  };
}

/** Parameters of /api/v1/plan, where the pause is called `edit`, as by `tandem plan`. */
export function parametersOf(choices) {
  const { users, gpus, memory, card, bus } = choices;
  const time = (name) => `${choices[name]}s`;
  return {
    users, gpus, burst: time("burst"), edit: time("pause"), away: time("away"), stay: time("stay"),
    bound: time("bound"), memory, card, bus,
  };
}

/**
 * What last week says, from the report by user: {users, gpus, busy, waited, pause}. `busy` is the part of the GPUs'
 * time; with this pause and jobs of `burst` seconds, so many users take as much of it. Null without data.
 */
export function lastWeek(report, burst) {
  const users = report.rows.filter((row) => row.active_s > 0).length;
  const gpus = report.gpus.length;
  if (users === 0 || gpus === 0) return null;
  const span = (Date.parse(report.until) - Date.parse(report.since)) / 1000;
  // The server's share is of the time that its accounts know, which may be shorter than a week.
  const sum = report.sum;
  const known = sum.share > 0 && sum.held_s > 0 ? sum.held_s / sum.share / gpus : span;
  const busy = Math.min(1, sum.active_s / (known * gpus));
  const pause = Math.max(1, Math.round(burst * (users / (busy * gpus) - 1)));
  return { users, gpus, busy, waited: sum.held_s > 0 ? sum.waited_s / sum.held_s : 0, pause };
}
