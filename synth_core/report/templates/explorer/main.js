// Ties controls, address and answer together.

import { answer } from "./answer.js";
import { MAX_MARKS, drawBars, drawHeatMap } from "./chart.js";
import { DATA } from "./page_data.js";
import { asCommand, inWords, readAddress, writeAddress } from "./question.js";
import { MAX_CELLS, asCsv, drawTable } from "./table.js";

const byId = (id) => document.getElementById(id);
let question = readAddress(location.hash);
let found = null;

function fill(select, choices, chosen, barred = []) {
  select.replaceChildren(...choices.map(([value, text]) => {
    const option = new Option(text, value, false, String(value) === String(chosen));
    option.disabled = barred.includes(value);
    return option;
  }));
}

/** Show the question in the controls; a column that has one part in it cannot have another. */
function showQuestion() {
  const columns = DATA.columns.map((column, place) => [place, column.name]);
  const { rows, columns: across, where } = question;
  fill(byId("rows"), columns, rows, [across, where]);
  fill(byId("columns"), [["", "none"], ...columns], across ?? "", [rows, where]);
  fill(byId("where"), [["", "all records"], ...columns], where ?? "", [rows, across]);
  byId("is-part").hidden = where === null;
  if (where !== null) fill(byId("is"), DATA.columns[where].captions.map((text, code) => [code, text]), question.code);
  const numbers = columns.filter(([place]) => DATA.columns[place].number);
  const means = numbers.map(([place, name]) => [place, `mean of ${name}`]);
  const share = where === null ? "share of all records" : "share of these records";
  const perRow = across === null ? [] : [["row", "share of each row"]];
  const measures = [["count", "count"], ["share", share], ...perRow, ...means];
  fill(byId("measure"), measures, question.measure, [rows, across, where]);
  fill(byId("level"), DATA.levels.map((level) => [level, `${level} %`]), question.level);
  byId("picture-part").hidden = across === null;
  for (const radio of document.getElementsByName("picture")) radio.checked = radio.value === question.picture;
}

function readControls() {
  const place = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  const measure = byId("measure").value;
  const where = place("where");
  const asked = {
    rows: place("rows"), columns: place("columns"), where, code: where === question.where ? place("is") ?? 0 : 0,
    measure: /^\d+$/.test(measure) ? Number(measure) : measure, level: byId("level").value,
    picture: document.querySelector("[name=picture]:checked")?.value ?? question.picture,
  };
  if (asked.columns === null && asked.measure === "row") asked.measure = "share";
  if ([asked.rows, asked.columns, asked.where].includes(asked.measure)) asked.measure = "count";
  // A second column with many values is easier to see as a heat map.
  if (asked.columns !== question.columns && asked.columns !== null) {
    asked.picture = DATA.columns[asked.columns].captions.length > 4 ? "heat" : "bars";
  }
  return asked;
}

function showAnswer() {
  found = answer(question);
  byId("answered").hidden = found === null;
  byId("missing").hidden = found !== null;
  byId("heading").textContent = inWords(question);
  byId("command").textContent = asCommand(question);
  byId("command-part").hidden = question.measure === "row";
  byId("status").textContent = found ? statusOf(found) : "This table is not in the page.";
  byId("status").className = !found ? "missing" : found.measured ? "measured" : "modelled";
  if (!found) return;
  byId("table").replaceChildren(drawTable(found));
  showPicture();
  const left = [];
  const numbers = found.rows.length * found.heads.length;
  const all = numbers.toLocaleString("en");
  if (numbers > MAX_MARKS) left.push(`The picture shows about ${MAX_MARKS} of ${all} numbers.`);
  if (numbers > MAX_CELLS) left.push(`The table shows about ${MAX_CELLS} of them; the CSV file has all.`);
  byId("cut").textContent = left.join(" ");
}

const MEASURED = "Measured: noisy answers about these columns together are behind this table.";
const MODELLED = "Modelled, not measured: no noisy answer held these columns together. The table follows from what the "
  + "model knows of fewer columns at a time, and a relation that only they have together may be missing.";
const SAMPLED = " Summing it out of the model would have taken too long: it was counted in a large sample.";

function statusOf({ measured, sampled }) {
  return (measured ? MEASURED : MODELLED) + (sampled ? SAMPLED : "");
}

function showPicture() {
  const heat = question.columns !== null && question.picture === "heat";
  const width = Math.max(280, Math.min(1000, byId("picture").clientWidth));
  const draw = heat ? drawHeatMap : drawBars;
  const alt = `${heat ? "Heat map" : "Bars with error bars"}: ${inWords(question)}; the table has the numbers.`;
  byId("picture").replaceChildren(draw(found, width, alt));
  byId("key-bars").hidden = heat;
  byId("key-heat").hidden = !heat;
}

function update() {
  question = readControls();
  history.replaceState(null, "", writeAddress(question));
  showQuestion();
  showAnswer();
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([asCsv(found)], { type: "text/csv" }));
  link.download = `${DATA.release} ${inWords(question)}`.replace(/[^\w.-]+/g, "-") + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

byId("controls").addEventListener("change", update);
byId("controls").addEventListener("submit", (event) => event.preventDefault());
byId("download").addEventListener("click", download);
addEventListener("hashchange", () => { question = readAddress(location.hash); showQuestion(); showAnswer(); });
let width = 0; // pictures are drawn for a width
new ResizeObserver(([entry]) => {
  if (found && Math.abs(entry.contentRect.width - width) > 1) { width = entry.contentRect.width; showPicture(); }
}).observe(byId("picture"));
byId("app").hidden = false;
showQuestion();
showAnswer();
