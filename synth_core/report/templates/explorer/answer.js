// From a question to numbers: a slice of one of the page's tables, each number with its interval.

import { DATA, cellOf, findTable, layerOf } from "./page_data.js";

/**
 * The answer, or null where the page does not hold the table.
 *
 * cells[row][column] is { value, margin, low, high, unsure }, with NaN for a mean of no records.
 */
export function answer(question) {
  const { rows, columns, where, code } = question;
  const mean = typeof question.measure === "number" ? question.measure : null;
  const asked = [rows, columns, where].filter((place) => place !== null);
  const table = findTable(asked, mean);
  const layer = table && layerOf(table, givenColumns(question));
  if (!layer) return null;
  const width = table.widths[question.level];
  const at = (row, column) => {
    const codes = new Map([[rows, row]]);
    if (columns !== null) codes.set(columns, column);
    if (where !== null) codes.set(where, code);
    return cellOf(table, codes);
  };
  const heads = columns === null ? [null] : DATA.columns[columns].captions;
  const raw = DATA.columns[rows].captions.map((_, row) => heads.map((_, column) => at(row, column)));
  const totals = totalsOf(question, raw, table.values);
  const cells = raw.map((line, row) => line.map((cell) => {
    const value = table.values[cell] / totals[row];
    const margin = Number.isNaN(value) ? NaN : width * layer.sigma(cell);
    return withInterval(value, margin, question.measure);
  }));
  const { measured, sampled } = table;
  return { question, rows: DATA.columns[rows].captions, heads, cells, measured, sampled };
}

/** The columns in which the records are equal of which a share is taken; null for counts and means. */
function givenColumns({ measure, rows, where }) {
  if (measure !== "share" && measure !== "row") return null;
  const given = where === null ? [] : [where];
  return measure === "row" ? [...given, rows] : given;
}

/** What the values of each row are divided by. */
function totalsOf({ measure }, raw, values) {
  const sums = raw.map((line) => line.reduce((sum, cell) => sum + values[cell], 0));
  if (measure === "row") return sums;
  const all = sums.reduce((sum, one) => sum + one, 0);
  return sums.map(() => (measure === "share" ? all : 1));
}

function withInterval(value, margin, measure) {
  const low = typeof measure === "number" ? value - margin : Math.max(0, value - margin);
  const high = measure === "share" || measure === "row" ? Math.min(1, value + margin) : value + margin;
  return { value, margin, low, high, unsure: margin > 0 && margin >= Math.abs(value) / 2 };
}

/** How an answer's numbers are written: counts whole, shares in percent, with the digits a middling margin leaves. */
export function writer(found) {
  const { measure } = found.question;
  const share = measure === "share" || measure === "row", unit = share ? 100 : 1;
  const margins = found.cells.flat().map((one) => unit * one.margin).filter((margin) => margin > 0);
  const middling = margins.sort((a, b) => a - b)[Math.floor(margins.length / 2)] ?? 1;
  const finest = Math.min(share ? 3 : 6, Math.max(share ? 1 : 0, 1 - Math.floor(Math.log10(middling))));
  const digits = measure === "count" ? 0 : finest;
  const format = new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return (number) => (Number.isNaN(number) ? "–" : format.format(unit * number) + (share ? "\u00a0%" : ""));
}
