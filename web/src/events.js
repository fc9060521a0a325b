// Server-sent events out of chunks of text, as the HTML standard has them, and how long to wait before
// the next try. Used with fetch(), since EventSource cannot send a token.

const MOST_BUFFERED = 4 << 20; // a server that never ends a line is not one of ours

/** Calls onEvent(name, data) for each whole event. */
export function eventParser(onEvent) {
  let buffer = "";
  let name = "";
  let data = [];
  const line = (text) => {
    if (text === "") {
      if (data.length) onEvent(name || "message", data.join("\n"));
      name = "";
      data = [];
      return;
    }
    const colon = text.indexOf(":");
    if (colon === 0) return; // a comment
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "event") name = value;
    else if (field === "data") data.push(value);
  };
  return (chunk) => {
    buffer += chunk;
    if (buffer.length > MOST_BUFFERED) throw new Error("an event of the server is too long");
    // A "\r" at the end may be half of "\r\n".
    const lines = buffer.split(/\r\n|\n|\r(?!$)/);
    buffer = lines.pop();
    lines.forEach(line);
  };
}

/** Seconds until try number `tries`, from 0: 1, 2, 4, 8, then 15; up to a fifth less, by `draw` in [0, 1). */
export function backOff(tries, draw) {
  return Math.min(15, 2 ** tries) * (1 - 0.2 * draw);
}
