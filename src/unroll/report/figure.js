// A figure: its panels, and the controls and legends that they share.

class Figure {
  constructor(data, curves, number, warmUp) {
    Object.assign(this, { data, curves, number, warmUp, zoom: null, off: { group: new Set(), line: new Set() } });
    this.settings = { x: data.x, y: "own", xLog: true, yLog: true, seeds: "band", marks: true, linked: true };
    this.view = this.view.bind(this);
    this.charts = data.panels.map((panel, i) => new Chart(this, panel, `${number}-${i}`));
    this.element = make("section", { class: "figure", id: data.id },
      make("h2", {}, bdi(data.title)), make("p", { class: "about" }, data.about),
      this.controls(),
      this.legend("group", data.groups, data.group_by), this.legend("line", data.lines, data.line_by),
      make("div", { class: "panels" }, ...this.charts.map((chart) => chart.element)));
    this.charts.forEach((chart) => chart.refresh()); // each draws itself when it has a place
  }

  // --- what the charts ask

  /** The range of both axes for a chart: its zoom, or everything, shared by the panels where they are linked. */
  view(chart) {
    const zoomed = this.settings.linked ? this.zoom : chart.zoom;
    if (zoomed) return zoomed;
    const lines = this.settings.linked ? this.charts.flatMap((each) => each.lines) : chart.lines;
    const top = this.settings.y === "own" ? naturalTop(lines, this.data.top) : naturalTop(lines, null);
    return { x: rangeOf(lines, "x", this.settings.xLog), y: rangeOf(lines, "y", this.settings.yLog, top) };
  }

  shows(series) {
    return !this.off.group.has(series.group) && !this.off.line.has(series.line);
  }

  /** Colour by group; among the lines of one colour the later are the stronger. */
  paint(element, series) {
    element.style.setProperty("--ink", colourOf(series.group));
    const several = this.data.lines.length - 1;
    element.style.setProperty("--strength", several ? (0.42 + (0.58 * series.line) / several).toFixed(2) : "1");
  }

  zoomTo(chart, zoom) {
    if (zoom) {
      // A logarithmic axis has no zero: switching to one must find the zoom usable.
      for (const axis of ["x", "y"]) zoom[axis] = zoom[axis].map((value) => Math.max(value, this.settings[`${axis}Log`] ? 1e-12 : 0));
    }
    if (this.settings.linked) this.zoom = zoom;
    else chart.zoom = zoom;
    (this.settings.linked ? this.charts : [chart]).forEach((each) => each.draw());
  }

  refresh() {
    this.zoom = null;
    this.charts.forEach((chart) => { chart.zoom = null; chart.refresh(); });
    this.drawAll();
  }

  drawAll() {
    this.charts.forEach((chart) => chart.draw());
  }

  // --- controls

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

  choice(words, name, options) {
    const binary = name === "xLog" || name === "yLog";
    const now = binary ? (this.settings[name] ? "log" : "linear") : this.settings[name];
    const select = make("select", {
      "aria-label": words || (name === "xLog" ? "Across: scale" : "Up: scale"),
      "data-setting": name,
      onchange: (event) => {
        this.settings[name] = binary ? event.target.value === "log" : event.target.value;
        this.refresh();
      },
    }, ...Object.entries(options).map(([value, label]) => make("option", { value, selected: value === now }, label)));
    return make("label", {}, words ? make("span", {}, words) : null, select);
  }

  box(name, words) {
    return make("label", {}, make("input", {
      type: "checkbox", checked: this.settings[name], "data-setting": name,
      onchange: (event) => { this.settings[name] = event.target.checked; this.refresh(); },
    }), words);
  }

  /** Buttons that switch series off and on; with Alt or Shift one is left alone, or all come back. */
  legend(kind, labels, by) {
    if (labels.length < 2) return null;
    const off = this.off[kind];
    const buttons = labels.map((label, i) => {
      const button = make("button", { type: "button", "aria-pressed": "true", title: "Click: on or off. Alt or Shift and click: this one alone.",
        onclick: (event) => {
          const alone = labels.every((_, other) => off.has(other) === (other !== i));
          if (event.altKey || event.shiftKey) {
            off.clear();
            if (!alone) labels.forEach((_, other) => other !== i && off.add(other));
          } else if (!off.delete(i)) off.add(i);
          buttons.forEach((each, other) => each.setAttribute("aria-pressed", String(!off.has(other))));
          this.drawAll();
        } }, make("span", { class: "swatch", "aria-hidden": "true" }), bdi(label));
      this.paint(button, kind === "group" ? { group: i, line: this.data.lines.length - 1 } : { group: -1, line: i });
      return button;
    });
    return make("div", { class: `legend ${kind}`, role: "group", "aria-label": `Show or hide by ${by}` },
      make("span", { class: "by" }, by), ...buttons);
  }
}

/** Ten colours are told apart; more than that are spread around the wheel. */
function colourOf(group) {
  if (group < 0) return "var(--text)";
  return group < 10 ? `var(--ink-${group})` : `hsl(${Math.round(group * 137.5) % 360} 55% 50%)`;
}
