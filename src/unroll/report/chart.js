// One panel: a drawing of its lines, and what the pointer and the keys do to it. Its figure says what the lines are.

const MARGIN = { left: 52, right: 14, top: 10, bottom: 40 };
const REACH = 60; // pixels within which a point is near the pointer

class Chart {
  /** `figure` owns the settings, the zoom and what is switched off; the chart draws and reports. */
  constructor(figure, panel, identity) {
    Object.assign(this, { figure, panel, identity, lines: [], hot: null, drag: null, width: 0 });
    this.live = make("p", { class: "unseen", "aria-live": "polite" });
    this.card = make("div", { class: "card", hidden: true });
    this.svg = draw("svg", {
      class: "chart", tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": `${panel.title}. Arrow keys read the points, plus and minus zoom, 0 resets.`,
      onpointermove: (event) => this.move(event),
      onpointerdown: (event) => this.press(event),
      onpointerup: (event) => this.release(event),
      onpointercancel: () => this.drop(),
      onpointerleave: () => !this.drag && this.point(null),
      ondblclick: () => figure.zoomTo(this, null),
      onwheel: (event) => this.wheel(event),
      onkeydown: (event) => this.key(event),
      onblur: () => this.point(null),
    });
    this.note = make("span", { class: "note" });
    const tool = (label, words, act) =>
      make("button", { type: "button", title: words, "aria-label": `${words}: ${panel.title}`, onclick: act }, label);
    this.element = make("section", { class: "panel" },
      make("header", {}, make("h3", {}, bdi(panel.title)), this.note,
        make("span", { class: "tools" },
          tool("−", "Zoom out", () => this.zoomBy(1.6)),
          tool("+", "Zoom in", () => this.zoomBy(1 / 1.6)),
          tool("⟲", "Reset the zoom", () => figure.zoomTo(this, null)),
          tool("⤢", "Enlarge or shrink", () => { this.element.classList.toggle("large"); this.draw(); }))),
      make("div", { class: "plot" }, this.svg, this.card), this.live);
    // A panel that is not in sight is laid out but not drawn: a page of hundreds of curves opens at once.
    new ResizeObserver(() => this.svg.clientWidth !== this.width && this.draw()).observe(this.svg);
  }

  /** Lines anew: after a change of axes, or of how seeds are shown. */
  refresh() {
    this.lines = this.figure.linesOf(this.panel);
  }

  draw() {
    const { settings, view } = this.figure;
    const logarithmic = this.figure.logarithmic(this.panel);
    this.width = this.svg.clientWidth || 560;
    this.height = this.svg.clientHeight || 340;
    const { width, height } = this;
    const { x, y } = view(this);
    this.x = makeScale(logarithmic.x, x[0], x[1], MARGIN.left, width - MARGIN.right);
    this.y = makeScale(logarithmic.y, y[0], y[1], height - MARGIN.bottom, MARGIN.top);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const inside = `inside-${this.identity}`;
    this.curves = draw("g", { "clip-path": `url(#${inside})` });
    this.over = draw("g", { "clip-path": `url(#${inside})` });
    this.box = draw("rect", { class: "box", visibility: "hidden" });
    this.drawn = [];
    for (const line of this.lines) if (this.figure.shows(line.series)) this.drawLine(line);
    if (settings.marks) for (const entry of this.drawn) this.drawMarks(entry);
    this.svg.replaceChildren(
      draw("defs", {}, draw("clipPath", { id: inside }, draw("rect", {
        x: MARGIN.left, y: MARGIN.top, width: Math.max(width - MARGIN.left - MARGIN.right, 1),
        height: height - MARGIN.top - MARGIN.bottom,
      }))),
      this.axes(), this.guides(), this.curves, this.over, this.box);
    this.tell();
    this.point(null);
  }

  axes() {
    const words = this.figure.words(this.panel);
    const group = draw("g", { class: "axes", "aria-hidden": "true" });
    const [left, right, top, bottom] = [MARGIN.left, this.width - MARGIN.right, MARGIN.top, this.height - MARGIN.bottom];
    for (const value of ticksOf(this.x, Math.max(3, (right - left) / 64))) {
      const at = this.x.at(value);
      group.append(draw("line", { class: "grid", x1: at, x2: at, y1: top, y2: bottom }),
        draw("text", { x: at, y: bottom + 15, "text-anchor": "middle" }, tickWords(value)));
    }
    for (const value of ticksOf(this.y, Math.max(3, (bottom - top) / 30))) {
      const at = this.y.at(value);
      group.append(draw("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }),
        draw("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, tickWords(value)));
    }
    group.append(draw("rect", { class: "frame", x: left, y: top, width: Math.max(right - left, 1), height: bottom - top }),
      draw("text", { class: "label", x: (left + right) / 2, y: this.height - 6, "text-anchor": "middle" }, words.x),
      draw("text", { class: "label", "text-anchor": "middle", transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)` }, words.y));
    return group;
  }

  /** Lines that mark a place of an axis, with their words. */
  guides() {
    const group = draw("g", { class: "guides", "aria-hidden": "true" });
    for (const { axis, value, words } of this.figure.guides(this.panel)) {
      if (value < this[axis].lo || value > this[axis].hi) continue;
      const at = this[axis].at(value);
      const [right, bottom] = [this.width - MARGIN.right, this.height - MARGIN.bottom];
      if (axis === "x") {
        group.append(draw("line", { x1: at, x2: at, y1: MARGIN.top, y2: bottom }),
          draw("text", { x: at + 4, y: MARGIN.top + 12 }, words));
      } else {
        group.append(draw("line", { x1: MARGIN.left, x2: right, y1: at, y2: at }));
      }
    }
    return group;
  }

  drawLine(line) {
    if (!line.points.length) return;
    const lowest = this.y.logarithmic ? 1e-9 : -Infinity;
    const at = (point, y) => `${this.x.at(point.x).toFixed(1)} ${this.y.at(Math.max(y, lowest)).toFixed(1)}`;
    const group = draw("g", { class: "series" });
    this.figure.paint(group, line.series);
    if (line.band) {
      const there = line.points.map((point) => at(point, point.high));
      const back = line.points.map((point) => at(point, point.low)).reverse();
      group.append(draw("path", { class: "band", d: `M${[...there, ...back].join("L")}Z` }));
    }
    const places = line.points.map((point) => at(point, point.y));
    if (places.length === 1) {
      const [cx, cy] = places[0].split(" ");
      group.append(draw("circle", { class: "dot", cx, cy, r: 3.5 }));
    } else {
      group.append(draw("path", { class: line.dashed ? "line dashed" : "line", d: `M${places.join("L")}` }));
    }
    this.curves.append(group);
    const pixels = line.points.map((point) => [this.x.at(point.x), this.y.at(point.y)]);
    this.drawn.push({ line, group, pixels });
  }

  drawMarks(entry) {
    for (const { kind, point } of this.figure.marksOf(entry.line)) {
      const [cx, cy] = [this.x.at(point.x), this.y.at(point.y)];
      // Unstable: a triangle. Stopped: a cross. Shapes, so that they do without colour.
      const shape = kind === "stopped" ? "M-5 -5L5 5M-5 5L5 -5" : "M0 -5.5L5 4H-5Z";
      entry.group.append(draw("path", { class: `mark ${kind}`, d: shape, transform: `translate(${cx.toFixed(1)} ${cy.toFixed(1)})` }));
    }
  }

  /** What the view leaves out at the top is said, so that a clipped curve is not taken for a good one. */
  tell() {
    const leaves = ({ line }) => {
      const first = line.points.findIndex((point) => point.y <= this.y.hi); // an untrained model may well begin above
      return line.points.some((point, i) => i > first && point.y > this.y.hi * 1.000001);
    };
    const above = this.drawn.filter(leaves).length;
    this.note.textContent = above ? `${above} ${above === 1 ? "leaves" : "leave"} the view` : "";
    this.note.title = above ? "These lines leave the view at the top: zoom out to see them." : "";
  }

  // --- the pointer

  place(event) {
    const box = this.svg.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * this.width, ((event.clientY - box.top) / box.height) * this.height];
  }

  move(event) {
    const [px, py] = this.place(event);
    if (this.drag) {
      this.drag.to = [px, py];
      const { from } = this.drag;
      for (const [name, value] of Object.entries({
        x: Math.min(from[0], px), y: Math.min(from[1], py), width: Math.abs(px - from[0]), height: Math.abs(py - from[1]),
      })) this.box.setAttribute(name, value);
      this.box.setAttribute("visibility", "visible");
      return;
    }
    let [best, nearest] = [null, REACH ** 2];
    for (const entry of this.drawn) {
      entry.pixels.forEach(([x, y], index) => {
        const distance = (x - px) ** 2 + (y - py) ** 2;
        if (distance < nearest && y >= MARGIN.top - 1) [best, nearest] = [{ entry, index }, distance];
      });
    }
    this.point(best);
  }

  press(event) {
    // A finger scrolls the page and reads points; zooming by touch is what the buttons are for.
    if (event.button !== 0 || event.pointerType === "touch") return;
    const from = this.place(event);
    this.drag = { from, to: from };
    this.svg.setPointerCapture(event.pointerId);
    this.point(null);
  }

  release() {
    if (!this.drag) return;
    const { from, to } = this.drag;
    this.drop();
    if (Math.abs(from[0] - to[0]) < 6 || Math.abs(from[1] - to[1]) < 6) return;
    const inX = [from[0], to[0]].sort((a, b) => a - b).map((p) => clamp(p, MARGIN.left, this.width - MARGIN.right));
    const inY = [from[1], to[1]].sort((a, b) => b - a).map((p) => clamp(p, MARGIN.top, this.height - MARGIN.bottom));
    if (inX[1] - inX[0] < 3 || inY[0] - inY[1] < 3) return;
    this.figure.zoomTo(this, { x: inX.map(this.x.from), y: inY.map(this.y.from) });
  }

  drop() {
    this.drag = null;
    this.box.setAttribute("visibility", "hidden");
  }

  wheel(event) {
    // Without a modifier the wheel scrolls the page, unless the chart was clicked first.
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== this.svg) return;
    event.preventDefault();
    this.zoomBy(1.0015 ** event.deltaY, this.place(event));
  }

  /** Around a place, or around the middle. */
  zoomBy(times, around) {
    const [px, py] = around || [(MARGIN.left + this.width - MARGIN.right) / 2, (MARGIN.top + this.height - MARGIN.bottom) / 2];
    const x = [MARGIN.left, this.width - MARGIN.right].map((p) => this.x.from(px + (p - px) * times));
    const y = [this.height - MARGIN.bottom, MARGIN.top].map((p) => this.y.from(py + (p - py) * times));
    // Past these, the numbers of the axes would no longer be told apart, or overflow.
    const sound = ([lo, hi]) => hi - lo > 1e-6 * hi && hi < 1e15 && (lo > 1e-12 || !(this.x.logarithmic && this.y.logarithmic));
    if (!sound(x) || !sound(y)) return;
    this.figure.zoomTo(this, { x, y });
  }

  // --- reading points, by pointer or by keys

  key(event) {
    const keys = {
      ArrowLeft: () => this.step(0, -1), ArrowRight: () => this.step(0, 1),
      ArrowUp: () => this.step(-1, 0), ArrowDown: () => this.step(1, 0),
      Home: () => this.step(0, -Infinity), End: () => this.step(0, Infinity),
      "+": () => this.zoomBy(1 / 1.6), "=": () => this.zoomBy(1 / 1.6), "-": () => this.zoomBy(1.6),
      0: () => this.figure.zoomTo(this, null), Escape: () => this.point(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey || !this.drawn.length) return;
    event.preventDefault();
    keys[event.key]();
  }

  step(lines, points) {
    const at = this.hot ? this.drawn.indexOf(this.hot.entry) : 0;
    const entry = this.drawn[(at + lines + this.drawn.length) % this.drawn.length];
    const last = entry.line.points.length - 1;
    const index = clamp((this.hot ? this.hot.index : last) + points, 0, last);
    this.point({ entry, index });
    const point = entry.line.points[index];
    this.live.textContent = this.figure.spoken(entry.line, point);
  }

  /** Lift one line out and show the facts of one of its points; null puts everything back. */
  point(found) {
    if (this.hot && this.hot.entry !== (found && found.entry)) this.hot.entry.group.classList.remove("hot");
    this.hot = found;
    this.svg.classList.toggle("reading", Boolean(found));
    this.over.replaceChildren();
    this.card.hidden = !found;
    if (!found) return;
    const { entry, index } = found;
    const point = entry.line.points[index];
    const [cx, cy] = entry.pixels[index];
    entry.group.classList.add("hot");
    const dots = draw("g", { class: "series hot" },
      ...entry.pixels.map(([x, y]) => draw("circle", { class: "dot", cx: x, cy: y, r: 1.8 })),
      draw("circle", { class: "ring", cx, cy, r: 5.5 }));
    this.figure.paint(dots, entry.line.series);
    this.over.append(dots);
    this.card.replaceChildren(
      make("strong", {}, `${numberWords(point.y)} `, make("small", {}, this.figure.words(this.panel).y)),
      make("p", {}, bdi(this.figure.titleOf(entry.line, point))),
      make("dl", {}, ...this.figure.factsOf(entry.line, point).flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, bdi(words))])));
    // On the side with more room, inside the panel.
    const share = this.svg.getBoundingClientRect().width / this.width;
    const onRight = cx < this.width / 2;
    this.card.style.left = onRight ? `${(cx + 14) * share}px` : "auto";
    this.card.style.right = onRight ? "auto" : `${(this.width - cx + 14) * share}px`;
    this.card.style.top = `${Math.max(0, Math.min(cy - 40, this.height - this.card.offsetHeight - 6))}px`;
  }
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
