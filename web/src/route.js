// The address of a screen: "#/people?by=day&since=4w". It holds all choices, so that it can be passed on.

export const SCREENS = ["now", "history", "people", "plan"];

export function parseHash(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const screen = SCREENS.includes(path) ? path : SCREENS[0];
  return { screen, query: Object.fromEntries(new URLSearchParams(query)) };
}

export function hashOf(screen, query = {}) {
  const kept = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const text = new URLSearchParams(kept).toString();
  return `#/${screen}${text ? `?${text}` : ""}`;
}
