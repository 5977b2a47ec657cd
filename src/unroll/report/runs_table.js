// Every run with all that is known of it, to search and to sort.

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

// On a narrow screen a card shows these, unless all is asked for.
const FIRST = new Set(["run", "scheme", "k1", "seed", "windowed", "progressive", "state"]);

class RunsTable {
  constructor(curves, warmUp) {
    // A column that says nothing about any run is left out.
    this.columns = COLUMNS.filter(([, value]) => curves.some((curve) => ![null, undefined, ""].includes(value(curve, warmUp))));
    this.rows = curves.map((curve) => {
      const values = this.columns.map(([, value]) => value(curve, warmUp));
      const cells = this.columns.map(([, , how = {}], i) => make("td", {
        class: [kinds(how), FIRST.has(this.columns[i][0]) ? null : "more"].filter(Boolean).join(" ") || null,
        title: how.title ? how.title(curve) : null, "data-label": this.columns[i][0],
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
    this.body.append(...this.rows.map((row) => row.element));
    const table = asTable(make("table", { class: "runs cards few" }, make("thead", {}, make("tr", {}, ...this.heads)), this.body));
    this.element = make("div", {},
      make("p", { class: "controls" }, make("label", { for: "search" }, "Search"), this.search, this.count),
      // Cards have no headings to click.
      make("p", { class: "controls narrow" },
        make("label", {}, make("span", {}, "Sort by"), make("select", { "aria-label": "Sort by", onchange: (event) => this.sort(Number(event.target.value)) },
          ...this.columns.map(([name], i) => make("option", { value: i }, name)))),
        make("label", {}, make("input", { type: "checkbox", onchange: (event) => table.classList.toggle("full", event.target.checked) }), "everything that is known")),
      scrolling("Every run", table), this.rows.length > FEW ? showAll(table, this.rows.length) : null);
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
      row.element.classList.toggle("later", shown > FEW);
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
    this.filter();
  }
}
