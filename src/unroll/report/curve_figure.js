// A figure of perplexity curves: what runs scored while they trained.

class CurveFigure extends Figure {
  constructor(data, curves, number, warmUp) {
    super(data, number, { x: data.x, y: "own", xLog: true, yLog: true, seeds: "band", marks: true, linked: true });
    Object.assign(this, { curves, warmUp });
    this.element = make("section", { class: "figure", id: data.id },
      make("h2", {}, bdi(data.title)), make("p", { class: "about" }, data.about), ...this.build());
  }

  linesOf(panel) {
    return linesOf(panel, this.curves, this.settings);
  }

  marksOf(line) {
    return marksOf(line, this.settings.y, this.warmUp);
  }

  words() {
    return { x: X_AXES[this.settings.x].label, y: Y_AXES[this.settings.y].label };
  }

  titleOf(line, point) {
    return point.curve.title;
  }

  factsOf(line, point) {
    return pointFacts(line, point);
  }

  spoken(line, point) {
    return `${curveWords(point.curve)}: batch ${numberWords(point.batch)}, ${numberWords(point.y)}`;
  }

  topOf(lines) {
    return naturalTop(lines, this.settings.y === "own" ? this.data.top : null);
  }

  controls() {
    const several = this.data.panels.some((panel) => panel.series.some((series) => series.curves.length > 1));
    const ys = Object.keys(Y_AXES).filter((name) => name === "own" || this.offers(name));
    return make("div", { class: "controls", role: "group", "aria-label": `Axes of ${this.data.title}` },
      this.choice("Across", "x", { sequences: "train sequences", batch: "batches", seconds: "training time" }),
      this.choice("", "xLog", { log: "logarithmic", linear: "linear" }),
      this.choice("Up", "y", Object.fromEntries(ys.map((name) => [name, Y_AXES[name].label]))),
      this.choice("", "yLog", { log: "logarithmic", linear: "linear" }),
      several ? this.choice("Seeds", "seeds", { band: "median and range", each: "each" }) : null,
      this.box("marks", `mark unstable ▲ (△ before batch ${this.warmUp}) and stopped ✕`),
      this.data.panels.length > 1 ? this.box("linked", "same axes in all panels") : null,
      make("button", { type: "button", onclick: () => this.refresh() }, "Reset zoom"));
  }

  /** Whether some curve was scored so more than at its end. */
  offers(name) {
    const used = new Set(this.data.panels.flatMap((panel) => panel.series.flatMap((series) => series.curves)));
    return [...used].some((index) => pointsOf(this.curves[index], "batch", name).length > 1);
  }
}
