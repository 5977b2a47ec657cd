// Tables. On a narrow screen each row is a card: every cell then says its column's name itself (`data-label`).

// A number, or one in words: 5.593, +9.7 %.
const isNumber = (value) => typeof value === "number" || (typeof value === "string" && /^[+−]?[0-9][0-9,.]*(\s%)?$/.test(value));
const FEW = 6; // cards that a narrow screen shows at once

/** Rows of text, numbers and what `blocks.py` makes (chips, intervals). */
function numbersTable(columns, rows, label) {
  const numeric = columns.map((_, i) => rows.some((row) => isNumber(row[i])) && rows.every((row) => isNumber(row[i]) || row[i] === null));
  const scales = columns.map((_, i) => intervalScale(rows.map((row) => row[i])));
  const cell = (value, i) => {
    const content = scales[i] ? intervalCell(value, scales[i]) : [cellContent(value)];
    return labelled(make("td", { class: numeric[i] || typeof value === "number" ? "number" : scales[i] ? "picture" : null }, ...content), columns[i]);
  };
  return asTable(make("table", { class: "cards", "aria-label": label }, head(...columns.map((name, i) => ({ name, number: numeric[i] }))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell))))));
}

/** The table in its place. On a narrow screen the first cards are shown, and a button shows the others. */
function tableBlock(title, columns, rows) {
  const table = numbersTable(columns, rows, title);
  const place = scrolling(title, table);
  if (rows.length <= FEW) return place;
  table.classList.add("few");
  return make("div", {}, place, showAll(table, rows.length));
}

/** On a narrow screen: all cards of a table instead of the first. */
function showAll(table, count) {
  const button = make("button", { type: "button", class: "all narrow", onclick: () => {
    table.classList.remove("few");
    button.remove();
  } }, `Show all ${numberWords(count)}`);
  return button;
}

function cellContent(value) {
  if (value !== null && typeof value === "object" && "chip" in value) return chip(value.chip, value.look);
  return bdi(numberWords(value));
}

const chip = (words, look, sign) => make("span", { class: `chip ${look}` }, sign ? `${sign} ` : null, bdi(words));

/** A cell that can stand alone in a card. */
function labelled(element, name) {
  if (name) element.setAttribute("data-label", name);
  return element;
}

const head = (...columns) => make("thead", {}, make("tr", {}, ...columns.map((column) => {
  const { name, number } = typeof column === "string" ? { name: column } : column;
  return make("th", { scope: "col", class: number ? "number" : null }, bdi(name));
})));

const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };

/** Rows that are laid out as cards lose what they are to a screen reader, unless it is said. */
function asTable(table) {
  for (const element of [table, ...table.querySelectorAll("thead, tbody, tr, td")]) element.setAttribute("role", ROLES[element.tagName]);
  for (const th of table.querySelectorAll("th")) th.setAttribute("role", th.scope === "col" ? "columnheader" : "rowheader");
  return table;
}

/** A table wider than its place is scrolled, by keys too. */
const scrolling = (label, table) => make("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": label }, table);

// --- intervals

const PICTURE = { width: 190, height: 26, edge: 8 };

/** One scale for the intervals of a column; null where it has none. */
function intervalScale(values) {
  const intervals = values.filter((value) => value && typeof value === "object" && "interval" in value);
  if (!intervals.length) return null;
  const numbers = intervals.flatMap(({ interval, at }) => [...interval, at]).filter((value) => Number.isFinite(value));
  let [lo, hi] = [Math.min(...numbers), Math.max(...numbers)];
  const logarithmic = lo > 0 && intervals.every(({ at }) => at === null);
  if (hi <= lo) [lo, hi] = logarithmic ? [lo / 2, lo * 2] : [lo - 1, hi + 1];
  return makeScale(logarithmic, lo, hi, PICTURE.edge, PICTURE.width - PICTURE.edge);
}

/** A dot for the mean, a bar for its interval, a line at what it is compared with; and the interval in words. */
function intervalCell(value, scale) {
  if (!value) return [bdi("–")];
  const { interval: [middle, low, high], at, words } = value;
  const y = PICTURE.height / 2;
  const picture = draw("svg", { class: "interval", viewBox: `0 0 ${PICTURE.width} ${PICTURE.height}`, width: PICTURE.width, height: PICTURE.height, "aria-hidden": "true" });
  if (at !== null) picture.append(draw("line", { class: "at", x1: scale.at(at), x2: scale.at(at), y1: 1, y2: PICTURE.height - 1 }));
  if (low !== null && high !== null) {
    const apart = at !== null && (low > at || high < at);
    picture.append(draw("rect", { class: apart ? "reach apart" : "reach", x: scale.at(low), width: Math.max(scale.at(high) - scale.at(low), 1), y: y - 4, height: 8, rx: 4 }));
  }
  picture.append(draw("circle", { class: "middle", cx: scale.at(middle), cy: y, r: 4 }));
  return [make("span", { class: "pictured" }, picture, make("span", {}, bdi(words)))];
}
