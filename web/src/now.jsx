// Who holds what and who waits, live.

import { bytes, count, percent, seconds } from "./format.js";
import { foldParts, partsOf } from "./memory.js";
import { Empty, Table } from "./parts.jsx";
import { linePoints } from "./samples.js";
import { holdersOf, inOrder, stateKind, stateWord, userOf, why } from "./words.js";

const COLOURS = 8;
const MOST_PARTS = 6; // of sessions, in a bar

/** A colour for each shown session: by its number, or the next free one. */
function coloursOf(parts) {
  const colours = new Map();
  const ids = parts.filter((part) => part.session).map((part) => part.session.id);
  for (const id of [...ids].sort((a, b) => a - b)) {
    let colour = id % COLOURS;
    while ([...colours.values()].includes(colour)) colour = (colour + 1) % COLOURS;
    colours.set(id, colour);
  }
  return colours;
}

const isTaken = (part) => part.kind !== "free" && part.kind !== "reserved";

function Memory({ gpu, sessions }) {
  const parts = foldParts(partsOf(gpu, sessions), MOST_PARTS);
  const colours = coloursOf(parts);
  const look = (part) => (part.session ? `colour-${colours.get(part.session.id)}` : part.kind);
  const total = gpu.card_bytes || 1;
  const used = parts.filter(isTaken).reduce((sum, part) => sum + part.bytes, 0);
  return (
    <div class="memory">
      <p class="line">
        <span>Memory</span>
        <span class="figure">
          {bytes(used)} of {bytes(gpu.card_bytes)}
        </span>
      </p>
      <div class="bar" aria-hidden="true">
        {parts
          .filter((part) => isTaken(part) && part.bytes > 0)
          .map((part) => (
            <i key={part.session?.id ?? part.kind} class={look(part)} style={{ width: `${(100 * part.bytes) / total}%` }} />
          ))}
      </div>
      <ul class="legend">
        {parts.map((part) => (
          <li key={part.session?.id ?? part.kind}>
            <i class={look(part)} aria-hidden="true" />
            <span class="name" title={part.name}>
              {part.name}
            </span>
            <span class="figure">{bytes(part.bytes)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function Utilisation({ gpu, samples, at }) {
  const mine = samples[gpu.uuid] ?? [];
  const points = linePoints(mine, at, 200, 40);
  const [first] = points.split(",");
  const last = points.split(" ").pop().split(",")[0];
  return (
    <div class="utilisation">
      <p class="line">
        <span>Utilisation</span>
        <strong class="figure">{percent(gpu.utilisation)}</strong>
      </p>
      <svg viewBox="0 -1 200 42" preserveAspectRatio="none" role="img" aria-label="Utilisation in the last minute">
        <line x1="0" x2="200" y1="40" y2="40" />
        {mine.length > 1 && (
          <>
            <polygon points={`${first},40 ${points} ${last},40`} />
            <polyline points={points} />
          </>
        )}
      </svg>
    </div>
  );
}

function Holder({ gpu, sessions }) {
  const holders = holdersOf(gpu, sessions);
  const waiting = gpu.waiting?.length ?? 0;
  const shown = holders.slice(0, 2);
  return (
    <p class="holder">
      <span class={`dot state-${holders.length ? "good" : "quiet"}`} aria-hidden="true" />
      <span class="who">
        {holders.length === 0 && "No session holds it"}
        {shown.map((each, index) => (
          <span key={each.id}>
            {index > 0 && ", "}
            <strong>{each.name}</strong> of {userOf(each)}
          </span>
        ))}
        {holders.length > shown.length && ` and ${holders.length - shown.length} more`}
        {holders.length > 0 && (holders.length === 1 ? " holds it" : " hold it together")}
      </span>
      <span class={waiting ? "waits" : "waits none"}>{waiting ? `${waiting} waiting` : "no one waits"}</span>
    </p>
  );
}

function policyText(gpu) {
  const rate = gpu.handovers_per_minute;
  return [
    gpu.policy,
    gpu.mode === "together" ? "all fit together" : gpu.quantum_s != null && `turns of ${seconds(gpu.quantum_s)}`,
    `hand-over ${seconds(gpu.switch_cost_s)}`,
    rate != null && `${rate < 10 ? rate.toFixed(1) : Math.round(rate)} a minute`,
  ]
    .filter(Boolean)
    .join(" · ");
}

function Card({ gpu, sessions, samples, at }) {
  return (
    <article class="card" aria-label={`gpu${gpu.index}`} data-gpu={gpu.index}>
      <h2>
        gpu{gpu.index} <small title={gpu.uuid}>{gpu.name}</small>
      </h2>
      <Holder gpu={gpu} sessions={sessions} />
      <Utilisation gpu={gpu} samples={samples} at={at} />
      <Memory gpu={gpu} sessions={sessions} />
      <p class="foot">{policyText(gpu)}</p>
    </article>
  );
}

function since(session, at) {
  const begin = Date.parse(session.since) / 1000;
  return Number.isFinite(begin) ? seconds(Math.floor(Math.max(0, at - begin))) : null;
}

function columnsFor(sessions, at, gpus) {
  const fair = gpus.some((gpu) => gpu.policy === "fair");
  const columns = [
    {
      key: "name", head: "Run", row: true,
      cell: (each) => (
        <>
          <span class="run" title={each.name}>
            {each.name}
          </span>
          {each.program && each.program !== each.name && <small>{each.program}</small>}
        </>
      ),
    },
    { key: "user", head: "User", cell: userOf },
    { key: "gpu", head: "GPU", cell: (each) => (each.gpu == null ? "–" : `gpu${each.gpu}`) },
    { key: "class", head: "Class", cell: (each) => each.class },
    {
      key: "state", head: "State", title: "and for how long",
      cell: (each) => (
        <span class={`state state-${stateKind(each)}`} title={each.state_text}>
          <span class="dot" aria-hidden="true" />
          {stateWord(each)} <small>{since(each, at)}</small>
        </span>
      ),
    },
    { key: "why", head: "Why it does not run", cell: (each) => why(each, sessions) },
    { key: "share", head: "Share", numeric: true, title: "share of its user's time", cell: (each) => each.share ?? "–" },
    { key: "busy", head: "Busy", numeric: true, title: "part of the last second with work in flight", cell: (each) => percent(each.utilisation) },
    { key: "resident", head: "On GPU", numeric: true, cell: (each) => bytes(each.resident_bytes) },
    { key: "swapped", head: "Swapped", numeric: true, title: "in host memory or files", cell: (each) => bytes(each.swapped_bytes) },
    { key: "waited", head: "Waited", numeric: true, title: "in all", cell: (each) => seconds(each.waited_s) },
  ];
  return columns.filter((column) => column.key !== "share" || fair);
}

function Sessions({ event, at, user, setUser }) {
  const all = inOrder([...(event.sessions ?? []), ...(event.runs ?? []).map((run) => ({ ...run, isRun: true }))]);
  const users = [...new Set(all.map(userOf))].sort();
  const chosen = users.includes(user) ? user : "";
  const rows = chosen ? all.filter((each) => userOf(each) === chosen) : all;
  if (all.length === 0) {
    return (
      <Empty title="No program uses a GPU.">
        Start one: <code>tandem run python train.py</code>
      </Empty>
    );
  }
  return (
    <section class="sessions">
      <div class="tools">
        <h2>Sessions</h2>
        <label class="field">
          User{" "}
          <select value={chosen} onChange={(change) => setUser(change.currentTarget.value)}>
            <option value="">all users</option>
            {users.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Table
        className="sessions-table"
        caption={`${count(rows.length, "session", "sessions")}${chosen ? ` of ${chosen}` : ""}`}
        columns={columnsFor(event.sessions ?? [], at, event.gpus ?? [])}
        rows={rows}
        keyOf={(each) => (each.isRun ? `run-${each.run}-${each.pid}` : `session-${each.id}`)}
      />
    </section>
  );
}

function summary(event) {
  const sessions = event.sessions ?? [];
  const kinds = (kind) => sessions.filter((each) => stateKind(each) === kind).length;
  const texts = [
    [kinds("good"), "running"],
    [kinds("wait"), "waiting"],
    [kinds("quiet"), "idle"],
    [kinds("off"), "suspended"],
    [kinds("bad"), "stuck or in the way"],
  ];
  return texts.filter(([number]) => number > 0).map(([number, text]) => `${number} ${text}`);
}

export function Now({ live, query, setQuery }) {
  const { event, samples, at } = live;
  if (event == null) {
    return (
      <>
        <h1>Now</h1>
        {live.state.kind === "connecting" && <p class="quiet">Asking the server …</p>}
      </>
    );
  }
  const gpus = event.gpus ?? [];
  return (
    <>
      <h1>
        Now <small>{[count(gpus.length, "GPU", "GPUs"), ...summary(event)].join(" · ")}</small>
      </h1>
      <div class="cards">
        {gpus.map((gpu) => (
          <Card key={gpu.uuid} gpu={gpu} sessions={event.sessions ?? []} samples={samples} at={at} />
        ))}
      </div>
      <Sessions event={event} at={at} user={query.user} setUser={(user) => setQuery({ user })} />
    </>
  );
}
