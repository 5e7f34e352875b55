// What a reader asks for: the controls show it, and the address keeps it, so that a view can be passed on.

import { DATA } from "./page_data.js";

/**
 * A question: places of columns (null for none), a condition, and how the answer is shown.
 *
 * measure is "count", "share" (of all records that meet the condition), "row" (of those of each row) or a column's
 * place, for the mean of its numbers.
 */
export const FIRST_QUESTION = {
  rows: 0, columns: null, where: null, code: 0, measure: "count", level: "90", picture: "bars",
};

const PICTURES = ["bars", "heat"];

/** The question that the address holds; whatever it does not say, or says wrongly, is as at first. */
export function readAddress(address) {
  const said = new URLSearchParams(address.replace(/^#/, ""));
  const place = (key) => {
    const found = DATA.columns.findIndex((column) => column.name === said.get(key));
    return found < 0 ? null : found;
  };
  const question = { ...FIRST_QUESTION, rows: place("rows") ?? FIRST_QUESTION.rows };
  question.columns = place("columns") === question.rows ? null : place("columns");
  const where = place("where");
  if (where !== null && where !== question.rows && where !== question.columns) {
    question.where = where;
    question.code = Math.max(0, DATA.columns[where].captions.indexOf(said.get("is")));
  }
  if (["share", "row"].includes(said.get("measure"))) question.measure = said.get("measure");
  const mean = place("mean");
  if (mean !== null && DATA.columns[mean].number) question.measure = mean;
  if (DATA.levels.includes(said.get("level"))) question.level = said.get("level");
  if (PICTURES.includes(said.get("picture"))) question.picture = said.get("picture");
  return question;
}

/** The address that holds a question. */
export function writeAddress(question) {
  const said = new URLSearchParams({ rows: DATA.columns[question.rows].name });
  if (question.columns !== null) said.set("columns", DATA.columns[question.columns].name);
  if (question.where !== null) {
    said.set("where", DATA.columns[question.where].name);
    said.set("is", DATA.columns[question.where].captions[question.code]);
  }
  if (typeof question.measure === "number") said.set("mean", DATA.columns[question.measure].name);
  else said.set("measure", question.measure);
  said.set("level", question.level);
  if (question.columns !== null) said.set("picture", question.picture);
  return `#${said}`;
}

/** The question in words, such as "Count by age and sex, where region = Corvane". */
export function inWords(question) {
  const name = (place) => DATA.columns[place].name;
  const measure = {
    count: "Count", share: "Share", row: `Share of each ${name(question.rows)}`,
  }[question.measure] ?? `Mean ${name(question.measure)}`;
  const by = question.columns === null ? name(question.rows) : `${name(question.rows)} and ${name(question.columns)}`;
  return `${measure} by ${by}${condition(question)}`;
}

/** The condition in words, or nothing. */
export function condition(question) {
  if (question.where === null) return "";
  const column = DATA.columns[question.where];
  return `, where ${column.name} = ${column.captions[question.code]}`;
}

/** The same question for the command line, which answers also what the page does not hold. */
export function asCommand(question) {
  const quoted = (text) => (/^[\w.=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const name = (place) => DATA.columns[place].name;
  const by = [question.rows, question.columns].filter((place) => place !== null).map(name).join(",");
  const parts = ["synth ask", quoted(DATA.release), "--by", quoted(by)];
  if (question.where !== null) {
    parts.push("--where", quoted(`${name(question.where)}=${DATA.columns[question.where].captions[question.code]}`));
  }
  if (typeof question.measure === "number") parts.push("--mean", quoted(name(question.measure)));
  if (question.measure === "share") parts.push("--share");
  parts.push("--level", question.level);
  return parts.join(" ");
}
