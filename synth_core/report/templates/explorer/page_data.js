// What the page was given: columns, and tables as packed bytes that are unpacked when somebody asks for them.

export const DATA = JSON.parse(document.getElementById("data").textContent);

const unpacked = new Map();

/** The name of a set of columns: their places, ascending. */
export function keyOf(columns, mean) {
  const places = [...columns].sort((a, b) => a - b).join(",");
  return mean === null ? places : `${places}:${mean}`;
}

const tables = new Map(DATA.tables.map((table) => [keyOf(table.of, table.mean), table]));

/**
 * A table that the page holds, or null.
 *
 * @param columns places of its columns, in any order
 * @param mean place of the column whose mean it gives, or null for counts
 */
export function findTable(columns, mean) {
  const key = keyOf(columns, mean);
  const table = tables.get(key);
  if (!table) return null;
  if (!unpacked.has(key)) unpacked.set(key, unpack(table));
  return unpacked.get(key);
}

/** Values take three bytes a cell; then each layer of standard deviations one byte a cell. */
function unpack(table) {
  const bytes = Uint8Array.from(atob(table.cells), (letter) => letter.charCodeAt(0));
  const shape = table.of.map((place) => DATA.columns[place].captions.length);
  const cells = shape.reduce((product, size) => product * size, 1);
  const values = new Float64Array(cells);
  for (let cell = 0; cell < cells; cell++) {
    const steps = bytes[3 * cell] + 256 * bytes[3 * cell + 1] + 65536 * bytes[3 * cell + 2];
    values[cell] = steps === NOTHING ? NaN : (table.least + steps) / table.per_unit;
  }
  const layers = table.layers.map(({ given, least, ratio }, number) => {
    const own = bytes.subarray((3 + number) * cells, (4 + number) * cells);
    return { given, sigma: (cell) => (own[cell] ? least * ratio ** (own[cell] - 1) : 0) };
  });
  const { of, measured, sampled, replicates } = table;
  return { of, shape, values, layers, measured, sampled, widths: DATA.widths[replicates] };
}

const NOTHING = 0xffffff; // a mean of no records

/** The place of a cell in a table's values, from the code of each of its columns. */
export function cellOf(table, codes) {
  return table.of.reduce((cell, column, axis) => cell * table.shape[axis] + codes.get(column), 0);
}

/** The standard deviations of a table's shares among records that are equal in the given columns; null for counts. */
export function layerOf(table, given) {
  const key = given === null ? null : keyOf(given, null);
  return table.layers.find((layer) => (layer.given === null ? null : keyOf(layer.given, null)) === key);
}
