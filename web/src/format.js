// Numbers and times as people read them. Everything takes null for "unknown", shown as a dash.

export const NONE = "–";
const KIB = 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Three significant digits at most, without an exponent. */
function short(value) {
  if (value === 0) return "0";
  if (value >= 99.95) return String(Math.round(value));
  if (value >= 9.995) return value.toFixed(1).replace(/\.0$/, "");
  return value.toFixed(2).replace(/\.?0+$/, "");
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  let unit = 0;
  let left = value;
  while (left >= 999.5 && unit + 1 < UNITS.length) {
    left /= KIB;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(left) : short(left)} ${UNITS[unit]}`;
}

/** Byte-seconds, in GiB hours. */
export function byteHours(value) {
  return isNumber(value) ? `${short(value / KIB ** 3 / 3600)} GiB h` : NONE;
}

export function seconds(value) {
  if (!isNumber(value)) return NONE;
  if (value < 0.0005) return "0 s";
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 9.95) return `${value.toFixed(1).replace(/\.0$/, "")} s`;
  const whole = Math.round(value);
  if (whole < 120) return `${whole} s`;
  if (whole < 7200 && whole !== 3600) return two(whole, 60, "min", "s");
  if (whole < 172800) return two(Math.round(whole / 60), 60, "h", "min");
  return two(Math.round(whole / 3600), 24, "days", "h");
}

/** Sums of time: from two hours on in hours, so that a column compares. */
export function hours(value) {
  if (!isNumber(value) || value < 7200) return seconds(value);
  return `${(value / 3600).toFixed(1)} h`;
}

function two(count, per, large, small) {
  const rest = count % per;
  return `${Math.floor(count / per)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

export function percent(value) {
  if (!isNumber(value)) return NONE;
  if (value > 0 && value < 0.01) return "<1 %";
  return `${Math.round(value * 100)} %`;
}

export function count(value, one, many) {
  return `${value} ${value === 1 ? one : many}`;
}

const pad = (value) => String(value).padStart(2, "0");

/** "14:03", with the day where it is not today: "Nov 25, 14:03". */
export function moment(date, now = new Date()) {
  if (date.toDateString() === now.toDateString()) return clock(date);
  return `${day(date)}, ${clock(date)}`;
}

export const clock = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}`;

export const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
export const day = (date) => `${MONTHS[date.getMonth()]} ${date.getDate()}`;

/** RFC 3339 in whole seconds, as /api/v1 takes it. */
export const rfc3339 = (unixSeconds) => `${new Date(unixSeconds * 1000).toISOString().slice(0, 19)}Z`;

/** A Date's value for <input type="datetime-local">. */
export const localInput = (date) =>
  `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}T${pad(date.getHours())}:${pad(date.getMinutes())}`;

const LAST_S = 253402300799; // of the year 9999

/** [from, to] of an address, or null: text that is no interval. */
export function interval(from, to) {
  const [left, right] = [Number(from), Number(to)];
  return left > 0 && right > left && right <= LAST_S ? [left, right] : null;
}
