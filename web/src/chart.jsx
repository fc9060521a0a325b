// uPlot in a component: made anew where the lines or the colours change, otherwise given new data.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, day } from "./format.js";

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const colourOf = (line) => `var(--c${line.colour})`;

function axis(format, extra) {
  return {
    stroke: style("--soft"),
    grid: { stroke: style("--line"), width: 1 },
    ticks: { stroke: style("--line"), width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
    values: (_, values) => values.map((value) => (value == null ? "" : format(value))),
    ...extra,
  };
}

/** For axes of seconds. */
export const TIMES = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
/** For axes of bytes. */
export const POWERS = Array.from({ length: 51 }, (_, power) => 2 ** power);
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/** Hours and minutes, the day at midnight, and days only where the ticks are so far apart. */
function clockTicks(self, splits, _axis, _space, step) {
  return splits.map((at) => {
    const date = new Date(at * 1000);
    const midnight = date.getHours() === 0 && date.getMinutes() === 0;
    return midnight || step >= 86400 ? day(date) : clock(date);
  });
}

/**
 * x: numbers. lines: [{name, values, colour, dash}]. format(value) and formatX(value, span) give texts. time: x is Unix
 * time. onZoom([from, to]) after dragging, onReset() after a double click. sync: charts with the same one
 * share their cursor. mark: an x with a line of its own. top: the least that the y axis reaches. steps: distances
 * of its lines.
 */
export function Chart({ x, lines, format, formatX, time, onZoom, onReset, sync, mark, dark, label, steps, top = 0, height = 180 }) {
  const frame = useRef(null);
  const plot = useRef(null);
  const calls = useRef({});
  calls.current = { onZoom, onReset, mark, format, formatX };
  const shape = JSON.stringify([lines.map((line) => [line.name, line.colour]), dark, time, height, top]);

  useEffect(() => {
    const made = new uPlot(
      {
        width: frame.current.clientWidth,
        height,
        padding: [10, 16, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: Boolean(onZoom), y: false, setScale: false },
          sync: sync ? { key: sync } : undefined,
          bind: { dblclick: () => () => calls.current.onReset?.() },
          points: { size: 7 },
        },
        scales: { x: { time: Boolean(time) }, y: { range: (_, low, high) => [0, Math.max(top, (high ?? 0) * 1.06) || 1] } },
        axes: [
          axis(String, time ? { space: 64, size: 30, values: clockTicks } : { space: 50, size: 30, incrs: WHOLE }),
          axis((value) => calls.current.format(value), { size: 62, space: 34, ...(steps ? { incrs: steps } : {}) }),
        ],
        series: [
          {},
          ...lines.map((line) => ({
            label: line.name,
            stroke: style(`--c${line.colour}`),
            width: 1.6,
            dash: line.dash,
            spanGaps: false,
            points: { show: false },
          })),
        ],
        hooks: {
          setSelect: [
            (self) => {
              const { left, width } = self.select;
              if (width < 4) return;
              const from = self.posToVal(left, "x");
              const to = self.posToVal(left + width, "x");
              self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
              calls.current.onZoom?.([from, to]);
            },
          ],
          draw: [(self) => drawMark(self, calls.current.mark)],
          setCursor: [(self) => showTip(self, frame.current, lines, calls.current)],
        },
      },
      [x, ...lines.map((line) => line.values)],
      frame.current,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: frame.current.clientWidth, height }));
    resized.observe(frame.current);
    return () => {
      resized.disconnect();
      made.destroy();
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData([x, ...lines.map((line) => line.values)]);
  }, [x, lines, mark]);

  return (
    <div class="chart" ref={frame} role="img" aria-label={label} style={{ height: `${height}px` }}>
      <div class="tip" hidden />
    </div>
  );
}

function drawMark(self, mark) {
  if (mark == null) return;
  const { ctx } = self;
  const at = self.valToPos(mark, "x", true);
  ctx.save();
  ctx.strokeStyle = style("--soft");
  ctx.setLineDash([4, 4]);
  ctx.beginPath();
  ctx.moveTo(at, self.bbox.top);
  ctx.lineTo(at, self.bbox.top + self.bbox.height);
  ctx.stroke();
  ctx.restore();
}

/** The values under the cursor, as text beside it. */
function showTip(self, frame, lines, { format, formatX }) {
  const tip = frame.querySelector(".tip");
  const { idx, left } = self.cursor;
  // Only in the chart under the pointer, although the others show the cursor, too.
  if (idx == null || left < 0 || !frame.matches(":hover")) {
    tip.hidden = true;
    return;
  }
  const head = document.createElement("strong");
  head.textContent = formatX(self.data[0][idx]);
  const rows = lines.map((line, index) => {
    const row = document.createElement("span");
    const dot = document.createElement("i");
    dot.className = `colour-${line.colour}`;
    row.append(dot, `${line.name}  ${format(self.data[index + 1][idx])}`);
    return row;
  });
  tip.replaceChildren(head, ...rows);
  tip.hidden = false;
  const at = left + self.bbox.left / devicePixelRatio;
  const width = tip.offsetWidth;
  tip.style.left = `${Math.max(0, at + width + 20 > frame.clientWidth ? at - width - 12 : at + 12)}px`;
}

export function Legend({ lines, figureOf }) {
  return (
    <ul class="legend">
      {lines.map((line) => (
        <li key={line.name}>
          <i class={`colour-${line.colour}`} aria-hidden="true" />
          <span class="name" title={line.name}>
            {line.name}
          </span>
          <span class="figure">{figureOf(line)}</span>
        </li>
      ))}
    </ul>
  );
}
