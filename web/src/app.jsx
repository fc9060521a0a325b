import { useEffect, useRef, useState } from "preact/hooks";
import { follow } from "./api.js";
import { useRoute, useTheme } from "./hooks.js";
import { SCREENS } from "./route.js";
import { withSample } from "./samples.js";
import { History } from "./history.jsx";
import { Now } from "./now.jsx";
import { People } from "./people.jsx";
import { Plan } from "./plan.jsx";

const TITLES = { now: "Now", history: "History", people: "People", plan: "Plan" };
const VIEWS = { now: Now, history: History, people: People, plan: Plan };

/** {event, samples, state, at}: the latest event of the daemon, and how the connection stands. */
function useLive() {
  const [live, setLive] = useState({ event: null, samples: {}, state: { kind: "connecting" }, at: null });
  useEffect(
    () =>
      follow(
        (event) =>
          setLive((old) => {
            const at = Date.parse(event.at) / 1000 || Date.now() / 1000;
            return { ...old, event, at, samples: withSample(old.samples, event, at) };
          }),
        (state) => setLive((old) => ({ ...old, state })),
      ),
    [],
  );
  return live;
}

const STATES = { connecting: "connecting", live: "live", lost: "not connected", refused: "refused" };

function Connection({ state }) {
  return (
    <p class={`connection ${state.kind}`} role="status" aria-live="polite">
      <span class="dot" aria-hidden="true" />
      {STATES[state.kind]}
    </p>
  );
}

/** What keeps the page from showing the present; stays in sight on all screens. */
function Trouble({ live }) {
  const { state, event } = live;
  const shown = event?.at ? `What you see is from ${new Date(event.at).toLocaleTimeString()}.` : "";
  if (state.kind === "lost") {
    return (
      <p class="trouble" role="alert">
        <strong>Lost the server.</strong> {state.error} The page tries again every few seconds. {shown}
      </p>
    );
  }
  if (state.kind === "refused") {
    return (
      <p class="trouble" role="alert">
        <strong>The server refuses this page.</strong> {state.error} Open the page as{" "}
        <code>{location.origin}/#token=TOKEN</code>, with the text of the token file, and reload it.
      </p>
    );
  }
  if (event?.error) {
    return (
      <p class="trouble" role="alert">
        <strong>No daemon.</strong> {event.error}
      </p>
    );
  }
  return null;
}

export function App() {
  const live = useLive();
  const [screen, query, setQuery] = useRoute();
  const [theme, dark, nextTheme] = useTheme();
  const main = useRef(null);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${TITLES[screen]} – Tandem`;
    // A reader of the screen hears the new heading; not at the start, when the page is read anyway.
    if (!first.current) main.current.focus({ preventScroll: true });
    first.current = false;
  }, [screen]);
  const View = VIEWS[screen];
  const old = live.state.kind === "lost" && live.event != null && screen === "now";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), main.current.focus())}>
        Skip to the content
      </a>
      <header class="top">
        <span class="brand">Tandem</span>
        <nav aria-label="Screens">
          {SCREENS.map((each) => (
            <a key={each} href={`#/${each}`} aria-current={each === screen ? "page" : undefined}>
              {TITLES[each]}
            </a>
          ))}
        </nav>
        <Connection state={live.state} />
        <button type="button" class="theme" onClick={nextTheme} aria-label={`Colours: ${theme}`} title={`Colours: ${theme}`}>
          <span aria-hidden="true">{theme === "auto" ? "◐" : dark ? "☾" : "☀"}</span>
        </button>
      </header>
      <Trouble live={live} />
      <main id="main" ref={main} tabIndex={-1} class={old ? "old" : ""} data-screen={screen}>
        <View live={live} query={query} setQuery={setQuery} dark={dark} />
      </main>
    </>
  );
}
