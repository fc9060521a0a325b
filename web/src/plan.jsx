// How long jobs wait for how many users, from the model of `tandem plan`.

import { useMemo } from "preact/hooks";
import { Chart, Legend, TIMES } from "./chart.jsx";
import { count, percent, seconds } from "./format.js";
import { useAnswer } from "./hooks.js";
import { Problem, Table } from "./parts.jsx";
import { BURSTS, PAUSES, choicesOf, isSize, lastWeek, nearest, parametersOf } from "./planning.js";

const WEEK = { since: "7d", by: "user" };

function Slider({ label, text, value, low, high, onChange }) {
  return (
    <label class="slider">
      <span class="line">
        <span>{label}</span>
        <output class="figure">{text}</output>
      </span>
      <input
        type="range" name={label} min={low} max={high} step="1" value={value} aria-valuetext={text}
        onInput={(event) => onChange(Number(event.currentTarget.value))}
      />
    </label>
  );
}

/** A slider through a list of seconds. A value between two of them, as of last week, stays as it is. */
function TimeSlider({ label, values, value, onChange }) {
  return (
    <Slider
      label={label} text={seconds(value)} value={nearest(values, value)} low={0} high={values.length - 1}
      onChange={(place) => onChange(values[place])}
    />
  );
}

function Size({ label, value, onChange }) {
  return (
    <label class="field">
      {label}
      <input
        type="text" size={6} value={value} pattern="\d+(\.\d+)?([KMGT](i?B)?)?" title="such as 20G"
        onChange={(event) => isSize(event.currentTarget.value) && onChange(event.currentTarget.value)}
      />
    </label>
  );
}

function Tile({ name, value, text }) {
  return (
    <div class="tile">
      <dt>{name}</dt>
      <dd>
        <strong>{value}</strong>
        <span>{text}</span>
      </dd>
    </div>
  );
}

function Result({ data, choices }) {
  const most = data.most_users ?? 0;
  return (
    <dl class="tiles" aria-live="polite">
      <Tile name="A job waits" value={seconds(data.mean_wait_s)} text="on average" />
      <Tile name="1 of 100 waits longer than" value={seconds(data.p99_wait_s)} text={`of jobs of ${seconds(choices.burst)}`} />
      <Tile name={choices.gpus === 1 ? "The GPU is busy" : "The GPUs are busy"} value={percent(data.utilisation)} text="of the time" />
      <Tile
        name={`For waits up to ${seconds(data.bound_s)}`} value={count(most, "user", "users")}
        text={`at most; ${choices.users} ${most >= choices.users ? (choices.users === 1 ? "fits" : "fit") : "are too many"}`}
      />
      {data.exclusive && (
        <Tile name="With a GPU taken for oneself" value={seconds(data.exclusive.mean_wait_s)} text="on average" />
      )}
    </dl>
  );
}

function Curve({ data, choices, dark }) {
  const [x, lines] = useMemo(() => {
    const { curve } = data;
    const line = (name, key, colour, dash) => ({ name, colour, dash, values: curve.map((point) => point[key]) });
    return [
      curve.map((point) => point.users),
      [line("mean wait", "mean_wait_s", 0), line("1 of 100 waits longer", "p99_wait_s", 7, [6, 4])],
    ];
  }, [data]);
  return (
    <section class="panel">
      <div class="panel-head">
        <h2>
          Wait <small>against the number of users; the dashed line is at {choices.users}</small>
        </h2>
      </div>
      <Chart
        x={x} lines={lines} format={seconds} formatX={(users) => count(users, "user", "users")} mark={choices.users}
        dark={dark} height={300} steps={TIMES} label={`Wait against users, from ${x[0]} to ${x[x.length - 1]}`}
      />
      <Legend lines={lines} figureOf={() => ""} />
      <details>
        <summary>As a table</summary>
        <Table
          caption="Waits by number of users"
          columns={[
            { key: "users", head: "Users", row: true, cell: (point) => point.users },
            { key: "mean", head: "Mean wait", numeric: true, cell: (point) => seconds(point.mean_wait_s) },
            { key: "p99", head: "1 of 100 longer than", numeric: true, cell: (point) => seconds(point.p99_wait_s) },
            { key: "busy", head: "Busy", numeric: true, cell: (point) => percent(point.utilisation) },
          ]}
          rows={data.curve}
          keyOf={(point) => point.users}
        />
      </details>
    </section>
  );
}

function Week({ choices, setQuery }) {
  const { data } = useAnswer("report", WEEK);
  const week = data?.rows ? lastWeek(data, choices.burst) : null;
  if (!week) return data ? <p class="quiet hint">There is no record of last week to begin with.</p> : null;
  return (
    <div class="week">
      <p>
        <strong>Last week</strong> {count(week.users, "user", "users")} kept {count(week.gpus, "GPU", "GPUs")} busy for{" "}
        {percent(week.busy)} of the time, and waited {seconds(week.waited * 60)} for each minute with a GPU.
      </p>
      <button type="button" onClick={() => setQuery({ users: week.users, gpus: week.gpus, pause: week.pause, away: null })}>
        Start from last week
      </button>
      <p class="quiet hint">Sets users, GPUs, and the pause with which jobs of this length take as much GPU time. Nights count.</p>
    </div>
  );
}

export function Plan({ query, setQuery, dark }) {
  const choices = choicesOf(query);
  const { data, error, busy } = useAnswer("plan", parametersOf(choices), { delay_ms: 120 });
  const set = (name) => (value) => setQuery({ [name]: value });
  return (
    <>
      <h1>
        Plan <small>how long jobs wait, by the number of users</small>
      </h1>
      <div class="plan">
        <section class="panel controls" aria-label="Assumptions">
          <Slider label="Users" text={String(choices.users)} value={choices.users} low={1} high={Math.max(60, choices.users)} onChange={set("users")} />
          <Slider label="GPUs" text={String(choices.gpus)} value={choices.gpus} low={1} high={16} onChange={set("gpus")} />
          <TimeSlider label="GPU time of a job" values={BURSTS} value={choices.burst} onChange={set("burst")} />
          <TimeSlider label="Pause to the next job" values={PAUSES} value={choices.pause} onChange={set("pause")} />
          <TimeSlider label="Wait that is acceptable" values={BURSTS} value={choices.bound} onChange={set("bound")} />
          <details>
            <summary>Memory and absences</summary>
            <div class="more">
              <Size label="Memory of each program" value={choices.memory} onChange={set("memory")} />
              <Size label="Memory of a card" value={choices.card} onChange={set("card")} />
              <Size label="Bus, bytes a second" value={choices.bus} onChange={set("bus")} />
              <label class="field">
                Absence after two hours
                <select value={String(choices.away)} onChange={(event) => setQuery({ away: event.currentTarget.value })}>
                  {[0, 900, 1800, 3600, 7200].map((each) => (
                    <option key={each} value={String(each)}>{each ? seconds(each) : "none"}</option>
                  ))}
                </select>
              </label>
            </div>
          </details>
          <Week choices={choices} setQuery={setQuery} />
        </section>
        <div class={`charts ${busy ? "busy" : ""}`}>
          <Problem error={error} />
          {data && <Result data={data} choices={choices} />}
          {data && <Curve data={data} choices={choices} dark={dark} />}
          <p class="quiet hint">
            A model with random times, first come, first served; the same as <code>tandem plan</code>.
          </p>
        </div>
      </div>
    </>
  );
}
