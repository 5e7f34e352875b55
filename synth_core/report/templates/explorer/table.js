// The numbers as a table for eyes and screen readers, and as a file.

import { writer } from "./answer.js";
import { DATA } from "./page_data.js";
import { condition, inWords } from "./question.js";

export const MAX_CELLS = 20000; // numbers that the table on the page shows; the file has all

function node(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/** The answer as a table element. */
export function drawTable(found) {
  const table = node("table", null);
  table.append(node("caption", `${inWords(found.question)}, ${found.question.level} % intervals`));
  const head = table.createTHead().insertRow();
  head.append(node("th", DATA.columns[found.question.rows].name, { scope: "col" }));
  const single = found.heads[0] === null;
  const names = single ? ["value", "margin", "from", "to"] : found.heads;
  for (const name of names) head.append(node("th", name, { scope: "col" }));
  const body = table.createTBody(), text = writer(found);
  const shown = Math.max(1, Math.floor(MAX_CELLS / found.heads.length));
  found.cells.slice(0, shown).forEach((cells, row) => {
    const line = body.insertRow();
    line.append(node("th", found.rows[row], { scope: "row" }));
    if (single) line.append(...singleCells(cells[0], text));
    else line.append(...cells.map((one) => pairedCell(one, text)));
  });
  return table;
}

function singleCells(one, text) {
  const value = node("td", text(one.value), one.unsure ? { class: "unsure" } : {});
  return [value, ...[`±${text(one.margin)}`, text(one.low), text(one.high)].map((words) => node("td", words))];
}

function pairedCell(one, text) {
  const cell = node("td", text(one.value), one.unsure ? { class: "unsure" } : {});
  if (!Number.isNaN(one.value)) cell.append(node("small", ` ±${text(one.margin)}`));
  return cell;
}

/** The answer as text with commas: one line for each number. */
export function asCsv(found) {
  const { question } = found;
  const names = [question.rows, question.columns].filter((place) => place !== null).map((p) => DATA.columns[p].name);
  const lines = [[...names, measureName(question), "low", "high", "level", "measured", "where"]];
  found.cells.forEach((cells, row) => cells.forEach((one, column) => {
    const labels = question.columns === null ? [found.rows[row]] : [found.rows[row], found.heads[column]];
    const numbers = [one.value, one.low, one.high].map((number) => (Number.isNaN(number) ? "" : rounded(number)));
    const status = found.measured ? "yes" : "no";
    lines.push([...labels, ...numbers, question.level, status, condition(question).replace(/^, where /, "")]);
  }));
  return lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

function measureName({ measure }) {
  if (typeof measure === "number") return `mean ${DATA.columns[measure].name}`;
  return measure === "count" ? "count" : "share";
}

function rounded(number) {
  return Number(number.toPrecision(9));
}

/** A cell of the file; a text that a spreadsheet would run as a formula gets an apostrophe before it. */
function quoted(cell) {
  const text = typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
