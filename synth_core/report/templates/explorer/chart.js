// Pictures as SVG, drawn for the width there is: bars with error bars, and a heat map with a line for each margin.

import { writer } from "./answer.js";
import { DATA } from "./page_data.js";

export const MAX_MARKS = 800; // bars or fields that a picture shows; the table has all

const SVG = "http://www.w3.org/2000/svg";

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function picture(width, height, alt) {
  return node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": alt });
}

/** Text cut to a width, of letters that are about seven units wide. */
function cut(text, width) {
  const letters = Math.max(3, Math.floor(width / 7));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

/** Horizontal bars, a panel for each column of the answer; all share one scale. */
export function drawBars(found, width, alt) {
  const text = writer(found);
  const panels = found.heads.map((head, column) => ({ head, bars: found.cells.map((line) => line[column]) }));
  const rows = Math.min(found.rows.length, Math.max(1, Math.floor(MAX_MARKS / panels.length)));
  const shown = panels.slice(0, MAX_MARKS);
  const line = 22, title = found.heads[0] === null ? 4 : 30;
  const left = Math.min(0.36 * width, 8 + 7 * Math.max(...found.rows.slice(0, rows).map((text) => text.length)));
  const right = 84;
  const ends = shown.flatMap(({ bars }) => bars.slice(0, rows).flatMap((one) => [one.low, one.high]));
  const known = ends.filter((end) => !Number.isNaN(end));
  const low = Math.min(0, ...known), high = Math.max(...known, 1e-12);
  const x = (value) => left + ((value - low) / (high - low)) * (width - left - right);
  const height = shown.length * (title + rows * line) + 4;
  const svg = picture(width, height, alt);
  shown.forEach(({ head, bars }, panel) => {
    const top = panel * (title + rows * line) + title;
    if (head !== null) {
      const name = `${DATA.columns[found.question.columns].name} = ${head}`;
      svg.append(node("text", { x: 0, y: top - 8, class: "head" }, cut(name, width)));
    }
    bars.slice(0, rows).forEach((one, row) => {
      const y = top + row * line + line / 2;
      svg.append(node("text", { x: left - 8, y: y + 4, "text-anchor": "end" }, cut(found.rows[row], left - 8)));
      if (Number.isNaN(one.value)) return;
      const begin = Math.min(x(0), x(one.value)), length = Math.abs(x(one.value) - x(0));
      svg.append(node("rect", { x: begin, y: y - 7, width: length, height: 14, class: "bar" }));
      const path = `M${x(one.low)} ${y}H${x(one.high)}M${x(one.low)} ${y - 4}v8M${x(one.high)} ${y - 4}v8`;
      svg.append(node("path", { d: path, class: "error" }));
      const kind = { "text-anchor": "end", class: one.unsure ? "unsure" : "" };
      svg.append(node("text", { x: width, y: y + 4, ...kind }, text(one.value)));
    });
  });
  return svg;
}

/** A field for each number; its foot has a line as long, of its width, as the margin is of the value. */
export function drawHeatMap(found, width, alt) {
  const rows = Math.min(found.rows.length, Math.max(1, Math.floor(MAX_MARKS / found.heads.length)));
  const heads = found.heads.slice(0, MAX_MARKS);
  const left = Math.min(0.32 * width, 8 + 7 * Math.max(...found.rows.slice(0, rows).map((text) => text.length)));
  const field = Math.max(26, Math.min(96, (width - left) / heads.length));
  const tilted = heads.some((head) => 7 * head.length > field - 4);
  const top = tilted ? Math.min(120, 14 + 6 * Math.max(...heads.map((head) => head.length))) : 24;
  const line = 30;
  const full = left + field * heads.length + (tilted ? 5 * heads.at(-1).length : 0); // the last label leans out
  const svg = picture(Math.max(width, Math.ceil(full)), top + rows * line + 4, alt);
  heads.forEach((head, column) => {
    const x = left + (column + 0.5) * field, y = top - 8;
    const turn = tilted ? { transform: `rotate(-50 ${x} ${y})`, "text-anchor": "start" } : { "text-anchor": "middle" };
    svg.append(node("text", { x, y, ...turn }, cut(head, tilted ? 126 : field)));
  });
  const values = found.cells.slice(0, rows).flat().map((one) => one.value).filter((value) => !Number.isNaN(value));
  const low = Math.min(0, ...values), high = Math.max(...values, 1e-12);
  found.cells.slice(0, rows).forEach((cells, row) => {
    const y = top + row * line;
    const place = { x: left - 8, y: y + line / 2 + 4, "text-anchor": "end" };
    svg.append(node("text", place, cut(found.rows[row], left - 8)));
    cells.slice(0, heads.length).forEach((one, column) => {
      if (Number.isNaN(one.value)) return;
      const x = left + column * field, depth = (one.value - low) / (high - low);
      const box = { x: x + 1, y: y + 1, width: field - 2, height: line - 2 };
      svg.append(node("rect", { ...box, class: "field", "fill-opacity": (0.06 + 0.94 * depth).toFixed(3) }));
      const share = Math.min(1, one.margin ? Math.abs(one.margin / one.value) : 0);
      const foot = `M${x + 3} ${y + line - 5}h${(field - 6) * share}`;
      svg.append(node("path", { d: foot, class: depth > 0.55 ? "error over" : "error" }));
    });
  });
  return svg;
}
