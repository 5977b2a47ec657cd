// Elements and words. Whatever comes from data is set as text, never as markup.

/** An element: make("button", { class: "x", onclick: f }, "text", child…). */
function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same inside a drawing. The page's emblem is one, and knows the name of its kind. */
function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(document.getElementById("emblem").namespaceURI, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text of unknown direction: what it holds cannot turn the words around it. */
const bdi = (text) => make("bdi", {}, String(text));

const schemeWords = (curve) =>
  (curve.scheme ? `scheme ${curve.scheme}: ` : "") + `${curve.train}, ${curve.sample}`;

/** Settings that differ from the paper's: dropout = 0.25. */
const variantWords = (curve) =>
  Object.entries(curve.variant).map(([name, value]) => `${name} = ${value}`).join(", ");

const shapeWords = (curve) => `r=${curve.layers} γ=${curve.hidden}`;

const stateWords = (curve) =>
  curve.state === "stopped" ? `stopped${curve.stopped_at ? ` at batch ${numberWords(curve.stopped_at)}` : ""}` : curve.state;

/** A curve in one line, for a reader who cannot see it. */
function curveWords(curve) {
  const words = [curve.title, schemeWords(curve), shapeWords(curve), `k1 ${curve.k1}`, `k2 ${curve.k2}`, `seed ${curve.seed}`];
  return [...words, variantWords(curve)].filter(Boolean).join(", ");
}

/** The evaluation at which a curve was best, by its validation set, or chosen on the test set where it has none. */
function bestOf(curve) {
  const [by, scores] = [curve.validation || curve[curve.sample] || [], curve[curve.sample] || []];
  const best = by.reduce((found, value, i) => (usable(value) && (found === null || value < by[found]) ? i : found), null);
  return best === null ? null : { batch: curve.batch[best], perplexity: scores[best] };
}

const bestWords = (curve) => {
  const best = bestOf(curve);
  return best ? `batch ${numberWords(best.batch)}, chosen on the ${curve.validation ? "validation" : "test"} set` : "no evaluation was finite";
};

/** The facts of a point, as pairs of a name and words. */
function pointFacts(line, point) {
  const { curve, i } = point;
  const facts = [["scheme", schemeWords(curve)], ["model", shapeWords(curve)], ["k1, k2", `${curve.k1}, ${curve.k2}`]];
  if (variantWords(curve)) facts.push(["differs in", variantWords(curve)]);
  if (line.band) {
    facts.push(["seeds", point.points.map((p) => p.curve.seed).join(", ")]);
    facts.push(["median", numberWords(point.y)]);
    facts.push(["each", point.points.map((p) => numberWords(p.y)).join(", ")]);
    const mean = point.points.reduce((sum, p) => sum + p.curve.seconds[p.i], 0) / point.points.length;
    facts.push(["training time", `${secondsWords(mean)} in the mean`]);
    const states = line.curves.filter((each) => each.state !== "finished");
    if (states.length) facts.push(["ended", states.map((each) => `seed ${each.seed}: ${stateWords(each)}`).join(", ")]);
  } else {
    facts.push(["seed", String(curve.seed)]);
  }
  facts.push(["batch", numberWords(point.batch)], ["sequences", numberWords(point.batch * curve.rows)]);
  if (!line.band) {
    for (const name of ["windowed", "progressive", "carried", "validation"]) {
      if (usable((curve[name] || [])[i])) facts.push([name, numberWords(curve[name][i])]);
    }
    if (curve.loss[i] !== null) facts.push(["training loss", `${numberWords(curve.loss[i])} nats per token`]);
    facts.push(["training time", secondsWords(curve.seconds[i])]);
    if (bestOf(curve)) facts.push(["best", bestWords(curve)]);
    facts.push(["state", stateWords(curve)]);
    if (curve.unstable.length) facts.push(["unstable at", `batch ${curve.unstable.map((batch) => numberWords(batch)).join(" and ")}`]);
    if (curve.reason) facts.push(["reason", curve.reason]);
    const where = [curve.device, curve.kernel, curve.precision].filter(Boolean).join(", ");
    facts.push(["ran on", where + (curve.fleet ? `, fleet of ${curve.fleet}` : "")]);
  }
  return facts;
}
