// Drift: perplexity by the age of the state, a line a run, and below it the difference from fresh windows.

class DriftFigure extends Figure {
  constructor(block) {
    const k2s = [...new Set(block.runs.map((run) => run.k2))].sort((a, b) => a - b);
    const panels = [{ title: "Perplexity", what: "perplexity" }, { title: "Difference from a fresh window", what: "above" }];
    super({ panels, groups: block.groups, lines: [""], group_by: "setting", line_by: "" }, "drift", { xLog: true, yLog: true, linked: false });
    Object.assign(this, { runs: block.runs, k2s, signed: true });
    this.element = make("div", { class: "figure" }, ...this.build());
  }

  /** The middle of a bin on a logarithmic axis. States that have read little are worse by far: below, old ones are shown. */
  linesOf(panel) {
    return this.runs.map((run) => {
      const bins = panel.what === "above" ? run.bins.filter(([first]) => first > run.k2 / 2) : run.bins;
      const points = bins.map(([first, last, middle, low, high, above, error]) => {
        const shared = { x: Math.sqrt(first * last), first, last, above, error, run };
        return panel.what === "above" ? { ...shared, y: above, low: above - error, high: above + error } : { ...shared, y: middle, low, high };
      });
      const sound = ({ y, low, high }) => [y, low, high].every((value) => typeof value === "number" && Number.isFinite(value));
      return { series: { group: run.group, line: 0 }, curves: [], band: true, points: points.filter(sound), run };
    });
  }

  logarithmic(panel) {
    return { x: this.settings.xLog, y: panel.what === "perplexity" };
  }

  guides(panel) {
    const marks = this.k2s.slice(0, 4).map((k2) => ({ axis: "x", value: k2, words: `k2 = ${k2}` }));
    return panel.what === "above" ? [...marks, { axis: "y", value: 0 }] : marks;
  }

  words(panel) {
    return { x: "tokens read since the state was reset", y: panel.what === "above" ? "nats above windowed" : "test perplexity" };
  }

  titleOf(line) {
    return line.run.label;
  }

  factsOf(line, { first, last, above, error, run }) {
    return [["tokens since reset", agesWords(first, last)],
      ["above windowed", `${signedWords(above)} ± ${numberWords(error, 2)} nats`], ["windowed, all", numberWords(run.windowed)]];
  }

  spoken(line, point) {
    return `${line.run.label}: ${agesWords(point.first, point.last)} token${point.last === 1 ? "" : "s"} since the reset, ${numberWords(point.y)}`;
  }

  controls() {
    return null;
  }
}

const signedWords = (value) => (value > 0 ? `+${numberWords(value, 3)}` : numberWords(value, 3).replace("-", "−"));

const agesWords = (first, last) => (first === last ? numberWords(first) : `${numberWords(first)} to ${numberWords(last)}`);
