// The last minute of each GPU's utilisation, from the events of /api/v1/live.

export const SPAN_S = 60;

/** A new map of GPU to [{at, value}], with the event's numbers and without those older than a minute. */
export function withSample(samples, event, at) {
  const next = {};
  for (const gpu of event.gpus ?? []) {
    const old = (samples[gpu.uuid] ?? []).filter((each) => each.at > at - SPAN_S && each.at < at);
    next[gpu.uuid] = gpu.utilisation == null ? old : [...old, { at, value: Math.min(1, gpu.utilisation) }];
  }
  return next;
}

/** The `points` of an SVG polyline over the last minute, in a box of that size. */
export function linePoints(samples, now, width, height) {
  return samples
    .map(({ at, value }) => {
      const x = width * (1 - (now - at) / SPAN_S);
      return `${Math.max(0, x).toFixed(1)},${(height * (1 - value)).toFixed(1)}`;
    })
    .join(" ");
}
