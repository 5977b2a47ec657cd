// Tables: the verdicts, the times beside the paper's, and every run with all that is known of it.

const VERDICTS = {
  "holds": { kind: "good", sign: "✓" },
  "holds in part": { kind: "fair", sign: "◐" },
  "does not hold": { kind: "bad", sign: "✗" },
  "cannot be told": { kind: "none", sign: "≈" },
};

function verdictTable(verdicts, figures) {
  const chip = (verdict) => {
    const { kind, sign } = VERDICTS[verdict] || { kind: "none", sign: "·" };
    return make("span", { class: `chip ${kind}` }, `${sign} ${verdict}`);
  };
  return scrolling("The paper's claims", make("table", { class: "verdicts" },
    head("claim", "the paper says", "verdict", "measured", "threshold", "evidence"),
    make("tbody", {}, ...verdicts.flatMap((each) => verdictRows(each, chip(each.verdict), figures)))));
}

/** A claim that says several things has a row for each: what was measured beside its own threshold. */
function verdictRows(verdict, chip, figures) {
  const { parts } = verdict;
  const whole = { rowspan: Math.max(parts.length, 1) };
  const cells = (part) => [
    make("td", { class: part.held === null ? "open" : part.held ? "held" : "failed" }, make("b", {}, `${part.held === null ? "≈" : part.held ? "✓" : "✗"} `, bdi(part.says)), ": ", bdi(part.measured)),
    make("td", {}, bdi(part.threshold), ...(part.intervals ? [make("small", {}, " ", bdi(part.intervals))] : []))];
  const first = parts.length ? cells(parts[0]) : [make("td", {}, bdi(verdict.measured)), make("td", {}, bdi(verdict.threshold))];
  return [
    make("tr", { class: "first" }, make("th", { scope: "row", ...whole }, bdi(verdict.claim)), make("td", whole, bdi(verdict.words)),
      make("td", whole, chip), ...first, make("td", whole, ...evidence(verdict, figures))),
    ...parts.slice(1).map((part) => make("tr", {}, ...cells(part)))];
}

/** What a verdict rests on: links to its figures, and its numbers, folded away. */
function evidence(verdict, figures) {
  const link = (name) => {
    const own = figures.filter((each) => each.name === name || each.name.startsWith(`${name}-`));
    const id = name === "timing" ? "times" : own.length ? own[0].id : null;
    return id ? make("a", { href: `#${id}` }, bdi(name)) : bdi(name);
  };
  const links = verdict.figures.map((name) => make("div", {}, link(name)));
  const { columns, rows } = verdict.evidence;
  if (!rows.length) return links;
  return [...links, make("details", {}, make("summary", {}, "numbers"), make("p", {}, bdi(verdict.measured)), numbersTable(columns, rows))];
}

/** Rows of words and numbers, as the records' tables have them. */
function numbersTable(columns, rows) {
  const cell = (value) => make("td", { class: typeof value === "number" ? "number" : null }, bdi(numberWords(value)));
  return make("table", {}, head(...columns), make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cell)))));
}

const head = (...names) => make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, bdi(name)))));
const scrolling = (label, table) => make("div", { class: "scrolling", tabindex: 0, role: "region", "aria-label": label }, table);

// --- times

/** Two tables: a training batch and a sampled token, the paper's numbers above ours, by scheme and architecture. */
function timingTables(times, paper) {
  const shapes = paper.shapes.map(([layers, hidden]) => ({ layers, hidden, words: `r=${layers} γ=${hidden}` }));
  const find = (scheme, shape, alone) => times.find((each) => each.scheme === scheme && each.layers === shape.layers
    && each.hidden === shape.hidden && (each.fleet === 1) === alone);
  const fleets = [...new Set(times.filter((each) => each.fleet > 1).map((each) => each.fleet))].sort((a, b) => a - b);
  const inFleet = `a run in a fleet of ${fleets.join(", ")}`;
  const small = paper.smaller > 1 ? `, γ divided by ${paper.smaller}` : "";
  const rows = { batch: [], token: [] };
  for (const scheme of [1, 2, 3, 4]) {
    const add = (table, words, cells, first) => {
      if (cells.every((cell) => !cell)) return;
      const name = first ? make("th", { scope: "rowgroup" }, `scheme ${scheme}`) : make("th", {}, "");
      rows[table].push(make("tr", { class: first ? "first" : null }, name, make("td", {}, words), ...cells.map((cell) => make("td", { class: "number" }, ...(cell || ["–"])))));
    };
    const theirs = (at) => shapes.map((shape, i) => [numberWords(paper.ms[scheme][i][at])]);
    const ours = (at, alone, pick) => shapes.map((shape, i) => {
      const value = pick(find(scheme, shape, alone) || { sample_ms: {} });
      return usable(value) ? withRatio(value, paper.ms[scheme][i][at]) : null;
    });
    add("batch", `the paper, ${paper.device}`, theirs(0), true);
    add("batch", `one run alone${small}`, ours(0, true, (time) => time.batch_ms));
    add("batch", inFleet + small, ours(0, false, (time) => time.batch_ms));
    add("token", `the paper, ${paper.device}`, theirs(1), true);
    const samplers = scheme <= 2 ? { windowed_naive: "windowed, as the paper runs it", windowed: "windowed, rolling" } : { progressive: "progressive" };
    for (const [name, words] of Object.entries(samplers)) add("token", words + small, ours(1, true, (time) => time.sample_ms[name]));
  }
  const table = (words, body) => make("div", {}, make("h3", {}, words),
    scrolling(words, make("table", { class: "times" }, head("scheme", "who", ...shapes.map((shape) => shape.words)), make("tbody", {}, ...body))));
  return make("div", { class: "panels wide" }, table("One training batch, milliseconds", rows.batch), table("One sampled token, milliseconds", rows.token));
}

const withRatio = (value, paper) => [numberWords(value, 3), " ", make("small", {}, `${numberWords(paper / value, 3)}×`)];

// --- runs

const COLUMNS = [
  ["run", (curve) => curve.name],
  ["corpus", (curve) => curve.title],
  ["scheme", (curve) => curve.scheme || `${curve.train}, ${curve.sample}`],
  ["r", (curve) => curve.layers, { number: true }],
  ["γ", (curve) => curve.hidden, { number: true }],
  ["k1", (curve) => curve.k1, { number: true }],
  ["k2", (curve) => curve.k2, { number: true }],
  ["seed", (curve) => curve.seed, { number: true }],
  ["windowed", (curve) => lastOf(curve.windowed), { number: true, digits: 4, title: () => "the last perplexity of the test set, windowed" }],
  ["progressive", (curve) => lastOf(curve.progressive), { number: true, digits: 4, title: () => "the last perplexity of the test set, progressive" }],
  ["lowest", (curve) => bestOf(curve)?.perplexity ?? null, { number: true, digits: 4, title: (curve) => `the test set's perplexity where the run was best, under its own procedure: ${bestWords(curve)}` }],
  ["state", stateWords, { title: (curve) => curve.reason || "" }],
  ["unstable at", (curve, warmUp) => curve.unstable.find((batch) => batch >= warmUp) ?? null, { number: true, title: () => "the first such batch after the first wild steps" }],
  ["differs in", variantWords],
  ["batches", (curve) => curve.batch.at(-1) ?? 0, { number: true, title: (curve) => `of ${numberWords(curve.batches)}` }],
  ["training s", (curve) => curve.seconds.at(-1) ?? null, { number: true }],
  ["fleet M", (curve) => curve.fleet, { number: true }],
  ["precision", (curve) => curve.precision],
  ["kernel", (curve) => curve.kernel],
  ["device", (curve) => curve.device],
  ["training", (curve) => curve.train, { screen: true }],
  ["sampling", (curve) => curve.sample, { screen: true }],
  ["corpus hash", (curve) => curve.sha256.slice(0, 12), { mono: true, screen: true, title: (curve) => `SHA-256 ${curve.sha256}` }],
  ["identity", (curve) => (curve.identity || "").slice(0, 12), { mono: true, screen: true, title: (curve) => curve.identity || "" }],
];

/** Classes: numbers stand to the right, hashes in even letters; what `screen` says is left out on paper. */
const kinds = (how) => ["number", "mono", "screen"].filter((kind) => how[kind]).join(" ") || null;

const lastOf = (column) => column.filter(usable).at(-1) ?? null;

class RunsTable {
  constructor(curves, warmUp) {
    // A column that says nothing about any run is left out.
    this.columns = COLUMNS.filter(([, value]) => curves.some((curve) => ![null, undefined, ""].includes(value(curve, warmUp))));
    this.rows = curves.map((curve) => {
      const values = this.columns.map(([, value]) => value(curve, warmUp));
      const cells = this.columns.map(([, , how = {}], i) => make("td", {
        class: kinds(how), title: how.title ? how.title(curve) : null,
      }, bdi(how.number ? numberWords(values[i], 4, how.digits) : values[i] ?? "–")));
      const text = [curveWords(curve), curve.sha256, curve.identity, curve.reason, ...values].join(" ").toLowerCase();
      return { values, text, element: make("tr", {}, ...cells) };
    });
    this.sorted = { column: -1, up: true };
    this.count = make("span", { class: "count", "aria-live": "polite" });
    this.search = make("input", { type: "search", id: "search", placeholder: "music k1 100 scheme 4 stopped …", oninput: () => this.filter() });
    this.heads = this.columns.map(([name, , how = {}], i) => make("th", { scope: "col", "aria-sort": "none", class: kinds(how) },
      make("button", { type: "button", onclick: () => this.sort(i) }, name)));
    this.body = make("tbody");
    this.element = make("div", {},
      make("p", { class: "controls" }, make("label", { for: "search" }, "Search"), this.search, this.count),
      scrolling("Every run", make("table", { class: "runs" }, make("thead", {}, make("tr", {}, ...this.heads)), this.body)));
    this.body.append(...this.rows.map((row) => row.element));
    this.filter();
  }

  /** Every word must be found; "k1 100" and its like are two words of one meaning only by chance, and good enough. */
  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.rows) {
      const found = words.every((word) => row.text.includes(word));
      row.element.hidden = !found;
      shown += found;
    }
    this.count.textContent = words.length ? `${shown} of ${this.rows.length}` : `${this.rows.length}`;
  }

  sort(column) {
    this.sorted = { column, up: this.sorted.column === column ? !this.sorted.up : true };
    this.heads.forEach((each, i) => each.setAttribute("aria-sort", i !== column ? "none" : this.sorted.up ? "ascending" : "descending"));
    const order = (a, b) => {
      const [x, y] = [a.values[column], b.values[column]];
      const [xNone, yNone] = [x, y].map((value) => value === null || value === undefined || value === "");
      if (xNone || yNone) return xNone - yNone; // what is not known comes last, up or down
      const by = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
      return this.sorted.up ? by : -by;
    };
    this.body.append(...this.rows.sort(order).map((row) => row.element));
  }
}
