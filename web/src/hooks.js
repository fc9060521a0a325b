// State that several screens use.

import { useEffect, useState } from "preact/hooks";
import { get } from "./api.js";
import { hashOf, parseHash } from "./route.js";

/** [screen, query, setQuery]. setQuery replaces the address, so that "back" leaves the screen. */
export function useRoute() {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = () => setHash(location.hash);
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  const { screen, query } = parseHash(hash);
  const setQuery = (changes) => {
    const next = hashOf(screen, { ...query, ...changes });
    history.replaceState(null, "", next);
    setHash(next);
  };
  return [screen, query, setQuery];
}

/**
 * {data, error, busy}: the answer to GET path. Asked again when a parameter or `every_s` says so; what was
 * there before stays until the next answer.
 */
export function useAnswer(path, parameters, { delay_ms = 0, every_s = 0 } = {}) {
  const [state, setState] = useState({ data: null, error: null, busy: true });
  const [round, setRound] = useState(0);
  const key = JSON.stringify(parameters);
  useEffect(() => {
    if (parameters == null) return undefined;
    const ending = new AbortController();
    setState((old) => ({ ...old, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const data = await get(path, parameters, ending.signal);
        if (!ending.signal.aborted) setState({ data, error: null, busy: false });
      } catch (error) {
        if (!ending.signal.aborted) setState((old) => ({ ...old, error: error.message, busy: false }));
      }
    }, delay_ms);
    return () => {
      clearTimeout(timer);
      ending.abort();
    };
  }, [path, key, round]);
  useEffect(() => {
    if (!every_s) return undefined;
    const timer = setInterval(() => document.hidden || setRound((old) => old + 1), every_s * 1000);
    return () => clearInterval(timer);
  }, [every_s]);
  return state;
}

const THEME = "tandem-theme";

/** ["auto" | "light" | "dark", whether it is dark now, next()]. */
export function useTheme() {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const [theme, setTheme] = useState(localStorage.getItem(THEME) ?? "auto");
  const [systemDark, setSystemDark] = useState(system.matches);
  useEffect(() => {
    const changed = (event) => setSystemDark(event.matches);
    system.addEventListener("change", changed);
    return () => system.removeEventListener("change", changed);
  }, []);
  const next = () => {
    const order = ["auto", "light", "dark"];
    const chosen = order[(order.indexOf(theme) + 1) % order.length];
    localStorage.setItem(THEME, chosen);
    setTheme(chosen);
  };
  const dark = theme === "auto" ? systemDark : theme === "dark";
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  return [theme, dark, next];
}
