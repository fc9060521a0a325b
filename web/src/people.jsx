// Who used what: the sums of `tandem report`.

import { useState } from "preact/hooks";
import { download } from "./api.js";
import { byteHours, bytes, day, hours, interval, localInput, moment, percent, rfc3339 } from "./format.js";
import { useAnswer } from "./hooks.js";
import { Choice, Empty, Problem } from "./parts.jsx";

const RANGES = [["today", "Today"], ["7d", "7 days"], ["4w", "4 weeks"], ["own", "Own"]];
const BY = [["user", "User"], ["project", "Project"], ["run", "Run"], ["gpu", "GPU"], ["day", "Day"], ["hour", "Hour"]];
const MOST_ROWS = 500;

const midnight = (at) => new Date(at.getFullYear(), at.getMonth(), at.getDate());

/** Parameters of /api/v1/report, and the choice that they stand for. */
function intervalOf(query) {
  const own = interval(query.from, query.to);
  if (query.since === "own" && own) return ["own", { since: rfc3339(own[0]), until: rfc3339(own[1]) }];
  if (query.since === "today") return ["today", { since: rfc3339(midnight(new Date()) / 1000) }];
  return query.since === "4w" ? ["4w", { since: "4w" }] : ["7d", { since: "7d" }];
}

function keyText(row, by, gpus) {
  const key = row[by];
  if (by === "gpu") {
    const known = gpus.find((gpu) => gpu.uuid === key);
    return known ? `gpu${known.index} ${known.name}` : key;
  }
  if (by === "day") return day(new Date(key));
  if (by === "hour") return moment(new Date(key), new Date(0));
  return key || `no ${by}`;
}

const COLUMNS = [
  ["share", "Share", (row) => percent(row.share), "part of the time of all GPUs"],
  ["held_s", "Held", (row) => hours(row.held_s), "time with a GPU"],
  ["active_s", "Active", (row) => hours(row.active_s), "of it with work in flight"],
  ["waited_s", "Waited", (row) => hours(row.waited_s), "time held back"],
  ["sessions", "Sessions", (row) => row.sessions, "different ones"],
  ["allocated_byte_s", "Memory", (row) => byteHours(row.allocated_byte_s), "allocated, times the hours"],
  ["handovers", "Hand-overs", (row) => row.handovers],
  ["moved", "Moved", (row) => bytes(row.out_bytes + row.in_bytes), "between GPUs and the host"],
];

function Rows({ data, by, busy, gpus }) {
  const rows = data.rows.slice(0, MOST_ROWS);
  const most = Math.max(...rows.map((row) => row.held_s), 1e-9);
  const cells = (row) =>
    COLUMNS.map(([key, head, text]) => (
      <td key={key} role="cell" class={`number at-${key}`} data-head={head}>
        {text(row)}
      </td>
    ));
  return (
    <div class={`panel flush ${busy ? "busy" : ""}`}>
      <div class="table-frame">
        <table class="people-table" role="table">
          <caption>Use by {by}</caption>
          <thead role="rowgroup">
            <tr role="row">
              <th role="columnheader" scope="col">{BY.find(([each]) => each === by)[1]}</th>
              <th role="columnheader" scope="col" class="use" title="held; the darker part was active">Use</th>
              {COLUMNS.map(([key, head, , title]) => (
                <th key={key} role="columnheader" scope="col" class={`number at-${key}`} title={title}>{head}</th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {rows.map((row, index) => (
              <tr key={`${index}-${row[by]}`} role="row">
                <th role="rowheader" scope="row" class="at-name" title={row[by] ?? ""}>{keyText(row, by, gpus)}</th>
                <td role="cell" class="use">
                  <span class="use-bar" role="img" aria-label={`${percent(row.held_s / most)} of the largest`}>
                    <i class="held" style={{ width: `${(100 * row.held_s) / most}%` }} />
                    <i class="active" style={{ width: `${(100 * Math.min(row.active_s, row.held_s)) / most}%` }} />
                  </span>
                </td>
                {cells(row)}
              </tr>
            ))}
          </tbody>
          <tfoot role="rowgroup">
            <tr role="row">
              <th role="rowheader" scope="row">in all</th>
              <td role="cell" class="use" />
              {cells(data.sum)}
            </tr>
          </tfoot>
        </table>
      </div>
    </div>
  );
}

export function People({ live, query, setQuery }) {
  const by = BY.some(([each]) => each === query.by) ? query.by : "user";
  const [since, bounds] = intervalOf(query);
  const parameters = { ...bounds, by };
  const { data, error, busy } = useAnswer("report", parameters, { delay_ms: 50 });
  const [failed, setFailed] = useState(null);
  const save = async () => {
    setFailed(null);
    try {
      await download("report", { ...parameters, format: "csv" }, `tandem-${by}-${since}.csv`);
    } catch (problem) {
      setFailed(problem.message);
    }
  };
  const now = Math.floor(Date.now() / 1000);
  const own = interval(query.from, query.to) ?? [now - 7 * 86400, now];
  const setOwn = (index) => (event) => {
    const at = Date.parse(event.currentTarget.value) / 1000;
    const next = [...own];
    next[index] = at;
    if (next[0] < next[1]) setQuery({ since: "own", from: next[0], to: next[1] });
  };
  const choose = (chosen) => setQuery(chosen === "own" ? { since: "own", from: own[0], to: own[1] } : { since: chosen, from: null, to: null });
  const shown = data?.rows ? data : null;  // of the choice before, until the next answer
  return (
    <>
      <h1>
        People{" "}
        {shown && (
          <small>
            {moment(new Date(shown.since))} to {moment(new Date(shown.until))} · {hours(shown.sum.active_s)} of GPU work ·{" "}
            {hours(shown.sum.waited_s)} of waiting
          </small>
        )}
      </h1>
      <div class="tools">
        <Choice label="Interval" value={since} choices={RANGES} onChange={choose} />
        <Choice label="By" value={by} choices={BY} onChange={(chosen) => setQuery({ by: chosen })} />
        {since === "own" &&
          ["From", "To"].map((text, index) => (
            <label key={text} class="field">
              {text} <input type="datetime-local" value={localInput(new Date(own[index] * 1000))} onChange={setOwn(index)} />
            </label>
          ))}
        <button type="button" class="csv push" onClick={save} disabled={!shown?.rows.length}>
          Download CSV
        </button>
      </div>
      <Problem error={error ?? failed ?? data?.error} />
      {!shown && busy && <p class="quiet">Asking the server …</p>}
      {shown && shown.rows.length === 0 && (
        <Empty title="No program used a GPU in this interval.">
          Choose a longer interval, or start a program: <code>tandem run python train.py</code>
        </Empty>
      )}
      {shown && shown.rows.length > 0 && <Rows data={shown} by={shown.by} busy={busy} gpus={live.event?.gpus ?? []} />}
      {shown && shown.rows.length > MOST_ROWS && (
        <p class="quiet hint">The first {MOST_ROWS} of {shown.rows.length} rows; the CSV file has all.</p>
      )}
    </>
  );
}
