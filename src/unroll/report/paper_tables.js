// The paper's tables: its claims with their verdicts, and its times beside ours.

const VERDICTS = {
  "holds": { kind: "good", sign: "✓" },
  "holds in part": { kind: "fair", sign: "◐" },
  "does not hold": { kind: "bad", sign: "✗" },
  "cannot be told": { kind: "none", sign: "≈" },
};

function verdictTable(verdicts, figures) {
  const chipOf = (verdict) => {
    const { kind, sign } = VERDICTS[verdict] || { kind: "none", sign: "·" };
    return chip(verdict, kind, sign);
  };
  return scrolling("The paper's claims", asTable(make("table", { class: "verdicts cards" },
    head("claim", "the paper says", "verdict", "measured", "threshold", "evidence"),
    make("tbody", {}, ...verdicts.flatMap((each) => verdictRows(each, chipOf(each.verdict), figures))))));
}

/** A claim that says several things has a row for each: what was measured beside its own threshold. */
function verdictRows(verdict, verdictChip, figures) {
  const { parts } = verdict;
  const whole = { rowspan: Math.max(parts.length, 1) };
  const cells = (part) => [
    labelled(make("td", { class: part.held === null ? "open" : part.held ? "held" : "failed" }, make("b", {}, `${part.held === null ? "≈" : part.held ? "✓" : "✗"} `, bdi(part.says)), ": ", bdi(part.measured)), "measured"),
    labelled(make("td", {}, bdi(part.threshold), ...(part.intervals ? [make("small", {}, " ", bdi(part.intervals))] : [])), "threshold")];
  const first = parts.length ? cells(parts[0]) : [labelled(make("td", {}, bdi(verdict.measured)), "measured"), labelled(make("td", {}, bdi(verdict.threshold)), "threshold")];
  return [
    make("tr", { class: "first" }, make("th", { scope: "row", ...whole }, bdi(verdict.claim)), labelled(make("td", whole, bdi(verdict.words)), "the paper says"),
      labelled(make("td", whole, verdictChip), "verdict"), ...first, labelled(make("td", whole, ...evidence(verdict, figures)), "evidence")),
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
      rows[table].push(make("tr", { class: first ? "first" : null }, name, make("td", {}, words), ...cells.map((cell, i) => labelled(make("td", { class: "number" }, make("span", {}, ...(cell || ["–"]))), shapes[i].words))));
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
    scrolling(words, asTable(make("table", { class: "times cards" }, head("scheme", "who", ...shapes.map((shape) => shape.words)), make("tbody", {}, ...body)))));
  return make("div", { class: "panels wide" }, table("One training batch, milliseconds", rows.batch), table("One sampled token, milliseconds", rows.token));
}

const withRatio = (value, paper) => [numberWords(value, 3), " ", make("small", {}, `${numberWords(paper / value, 3)}×`)];
