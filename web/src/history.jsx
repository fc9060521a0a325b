// Utilisation, waits and memory over time. One interval for all charts: zooming asks for a finer answer.

import { useMemo, useState } from "preact/hooks";
import { Chart, Legend, POWERS } from "./chart.jsx";
import { bytes, count, interval, localInput, moment, percent, rfc3339, seconds } from "./format.js";
import { useAnswer } from "./hooks.js";
import { Choice, Empty, Problem, Table } from "./parts.jsx";
import { figures, hasData, linesOf, rowsOf, zoomed } from "./series.js";

const RANGES = [["1h", "Hour"], ["24h", "Day"], ["4w", "4 weeks"], ["own", "Own"]];
const SPANS = { "1h": 3600, "24h": 86400, "4w": 28 * 86400 };
const BY = [["gpu", "GPU"], ["user", "User"], ["project", "Project"]];
const MEMORY = [["allocated", "allocated"], ["resident", "on GPUs"], ["swapped", "swapped"]];
const ROWS = 48;

const number = (value) => (value == null ? "–" : value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value)));
const nowS = () => Math.floor(Date.now() / 1000);

/** One quantity: its chart, its means, and the same as a table. */
function Quantity({ title, unit, answer, measure, format, zoom, dark, top, steps, children }) {
  const lines = useMemo(() => linesOf(answer, measure), [answer, measure]);
  const [open, setOpen] = useState(false);
  const { times } = answer;
  const clock = (at) => moment(new Date(at * 1000));
  const means = lines.map((line) => `${line.name} ${format(figures(line.values, times).mean)}`).join(", ");
  return (
    <section class="panel" data-measure={title}>
      <div class="panel-head">
        <h2>
          {title} <small>{unit}</small>
        </h2>
        {children}
      </div>
      <Chart
        x={times} lines={lines} format={format} formatX={clock} time sync="history" dark={dark} top={top} steps={steps}
        onZoom={zoom.to} onReset={zoom.reset} label={`${title}: on average ${means}`}
      />
      <Legend lines={lines} figureOf={(line) => `mean ${format(figures(line.values, times).mean)}`} />
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>As a table</summary>
        {open && (
          <Table
            caption={`${title}, ${unit}`}
            columns={[
              { key: "at", head: "From", row: true, cell: (row) => clock(row.at) },
              ...lines.map((line, index) => ({
                key: `line-${index}`, head: line.name, numeric: true, cell: (row) => format(row.values[index]),
              })),
            ]}
            rows={rowsOf(times, lines, ROWS)}
            keyOf={(row) => row.at}
          />
        )}
      </details>
    </section>
  );
}

function OwnInterval({ bounds, setBounds }) {
  const change = (index) => (event) => {
    const at = Date.parse(event.currentTarget.value) / 1000;
    if (!Number.isFinite(at)) return;
    const next = [...bounds];
    next[index] = at;
    if (next[0] < next[1]) setBounds(next);
  };
  return (
    <>
      {["From", "To"].map((text, index) => (
        <label key={text} class="field">
          {text}{" "}
          <input type="datetime-local" value={localInput(new Date(bounds[index] * 1000))} onChange={change(index)} />
        </label>
      ))}
    </>
  );
}

/** The interval that the address names: [from, to, name of the choice]. */
function intervalOf(query, now) {
  const own = interval(query.from, query.to);
  if (own) return [...own, query.range in SPANS ? query.range : "own"];
  const range = query.range in SPANS ? query.range : "1h";
  return [now - SPANS[range], now, range];
}

export function History({ query, setQuery, dark }) {
  const [round, setRound] = useState(0);
  const now = useMemo(nowS, [query, round]);
  const [from, to, range] = intervalOf(query, now);
  const isZoomed = interval(query.from, query.to) != null;
  const by = BY.some(([each]) => each === query.by) ? query.by : "gpu";
  const memory = MEMORY.some(([each]) => each === query.memory) ? query.memory : "allocated";
  // Without an own interval the parameters stay the same, so that the answer can be asked again.
  const bounds = isZoomed ? { since: rfc3339(from), until: rfc3339(to) } : { since: range };
  const { data, error, busy } = useAnswer("history", { ...bounds, by, points: 360 }, { delay_ms: 80, every_s: isZoomed ? 0 : 30 });

  const go = ([left, right]) => setQuery({ from: Math.round(left), to: Math.round(right), range });
  const zoom = {
    to: ([left, right]) => go(zoomed([left, right], 1, 0, nowS())),
    by: (factor, shift) => go(zoomed([from, to], factor, shift, nowS())),
    reset: () => {
      setQuery({ from: null, to: null, range: range === "own" ? "1h" : range });
      setRound((old) => old + 1);
    },
  };
  const keys = {
    "+": () => zoom.by(0.5, 0),
    "=": () => zoom.by(0.5, 0),
    "-": () => zoom.by(2, 0),
    ArrowLeft: () => zoom.by(1, -0.25),
    ArrowRight: () => zoom.by(1, 0.25),
    0: zoom.reset,
    Escape: zoom.reset,
  };
  const pressed = (event) => {
    if (event.target !== event.currentTarget || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  };
  const chooseRange = (chosen) => setQuery(chosen === "own" ? { range: "own", from, to } : { range: chosen, from: null, to: null });
  const empty = data && !hasData(data);
  const common = { answer: data, zoom, dark };
  const unit = by === "gpu" ? "part of the time with work in flight" : "work in flight, as part of one GPU's time";

  return (
    <>
      <h1>
        History <small aria-live="polite">{`${moment(new Date(from * 1000))} to ${moment(new Date(to * 1000))}`}{data && ` · steps of ${seconds(data.step_s)}`}</small>
      </h1>
      <div class="tools">
        <Choice label="Interval" value={range} choices={RANGES} onChange={chooseRange} />
        <Choice label="By" value={by} choices={BY} onChange={(chosen) => setQuery({ by: chosen })} />
        {range === "own" && <OwnInterval bounds={[from, to]} setBounds={go} />}
        <div class="buttons push" role="group" aria-label="Zoom">
          <button type="button" onClick={() => zoom.by(1, -0.25)} aria-label="Earlier">◀</button>
          <button type="button" onClick={() => zoom.by(1, 0.25)} aria-label="Later" disabled={!isZoomed}>▶</button>
          <button type="button" onClick={() => zoom.by(0.5, 0)} aria-label="Zoom in">+</button>
          <button type="button" onClick={() => zoom.by(2, 0)} aria-label="Zoom out">−</button>
          <button type="button" class="reset" onClick={zoom.reset} disabled={!isZoomed}>Reset</button>
        </div>
      </div>
      <Problem error={error} />
      {data?.error && <Problem error={data.error} />}
      {!data && busy && <p class="quiet">Asking the server …</p>}
      {empty && isZoomed && <p class="quiet hint">Nothing is recorded for this interval. Zoom out, or press 0.</p>}
      {empty && !isZoomed && (
        <Empty title="Nothing is recorded for this interval.">
          The daemon records while programs run. Choose a longer interval, or start a program:{" "}
          <code>tandem run python train.py</code>
        </Empty>
      )}
      {data && (isZoomed || !empty) && (
        <div
          class={`charts ${busy ? "busy" : ""}`} tabIndex={0} role="group" onKeyDown={pressed}
          aria-label="Charts. Keys: plus and minus zoom, arrows move, 0 resets."
        >
          <Quantity title="Utilisation" unit={unit} measure="utilisation" format={percent} top={by === "gpu" ? 1 : 0.1} {...common} />
          <Quantity title="Waiting" unit="sessions that wait, on average" measure="waiting" format={number} top={1} {...common} />
          <Quantity title="Memory" unit={MEMORY.find(([each]) => each === memory)[1]} measure={memory} format={bytes} steps={POWERS} {...common}>
            <label class="field">
              <span class="hidden">Which memory</span>
              <select value={memory} onChange={(event) => setQuery({ memory: event.currentTarget.value })}>
                {MEMORY.map(([value, text]) => (
                  <option key={value} value={value}>{text}</option>
                ))}
              </select>
            </label>
          </Quantity>
          <p class="quiet hint">
            Drag over a chart to zoom, double-click to reset. {count(data.series.length, "line", "lines")} in the data
            {data.complete_since && `, complete since ${moment(new Date(data.complete_since))}`}.
          </p>
        </div>
      )}
    </>
  );
}
