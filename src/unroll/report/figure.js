// A figure: its panels, and the controls and legends that they share. A kind of figure says what its lines are:
//   linesOf(panel), marksOf(line), guides(panel), words(panel), titleOf, factsOf, spoken, topOf(lines), controls()

class Figure {
  /** `data` has panels, groups (a colour each), lines (a strength each) and words for both. */
  constructor(data, number, settings) {
    Object.assign(this, { data, number, settings, zoom: null, off: { group: new Set(), line: new Set() } });
    this.view = this.view.bind(this);
  }

  build() {
    const { data } = this;
    this.charts = data.panels.map((panel, i) => new Chart(this, panel, `${this.number}-${i}`));
    const parts = [this.controls(), this.legend("group", data.groups, data.group_by), this.legend("line", data.lines, data.line_by),
      make("div", { class: "panels" }, ...this.charts.map((chart) => chart.element))];
    this.charts.forEach((chart) => chart.refresh()); // each draws itself when it has a place
    return parts.filter(Boolean);
  }

  // --- what the charts ask

  /** The range of both axes for a chart: its zoom, or everything, shared by the panels where they are linked. */
  view(chart) {
    const zoomed = this.settings.linked ? this.zoom : chart.zoom;
    if (zoomed) return zoomed;
    const lines = this.settings.linked ? this.charts.flatMap((each) => each.lines) : chart.lines;
    const logarithmic = this.logarithmic(chart.panel);
    return { x: rangeOf(lines, "x", logarithmic.x), y: rangeOf(lines, "y", logarithmic.y, this.topOf(lines)) };
  }

  logarithmic() {
    return { x: this.settings.xLog, y: this.settings.yLog };
  }

  marksOf() {
    return [];
  }

  guides() {
    return [];
  }

  topOf() {
    return null;
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
      const logarithmic = this.logarithmic(chart.panel);
      const lowest = (axis) => (logarithmic[axis] ? 1e-12 : this.signed ? -Infinity : 0);
      for (const axis of ["x", "y"]) zoom[axis] = zoom[axis].map((value) => Math.max(value, lowest(axis)));
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
