// What is drawn: points of a curve on the axes that were chosen, and the middle and the range over seeds.

const X_AXES = {
  sequences: { label: "train sequences", of: (curve, i) => curve.batch[i] * curve.rows },
  batch: { label: "batches", of: (curve, i) => curve.batch[i] },
  seconds: { label: "training time (seconds)", of: (curve, i) => curve.seconds[i] },
};

const Y_AXES = {
  own: { label: "test perplexity", of: (curve, i) => (curve[curve.sample] || [])[i] },
  windowed: { label: "test perplexity, windowed", of: (curve, i) => curve.windowed[i] },
  progressive: { label: "test perplexity, progressive", of: (curve, i) => curve.progressive[i] },
  carried: { label: "test perplexity, from carried states", of: (curve, i) => (curve.carried || [])[i] },
  // The loss is in nats per token: e to its power is a perplexity, and stands beside the test set's.
  loss: { label: "training perplexity", of: (curve, i) => (curve.loss[i] === null ? null : Math.exp(curve.loss[i])) },
};

const usable = (value) => typeof value === "number" && Number.isFinite(value) && value > 0;

/** The points of one curve; what was not scored, or is no positive number, has no place on either axis. */
function pointsOf(curve, xName, yName) {
  const found = [];
  curve.batch.forEach((batch, i) => {
    const x = X_AXES[xName].of(curve, i);
    const y = Y_AXES[yName].of(curve, i);
    if (usable(x) && usable(y)) found.push({ x, y, batch, i, curve });
  });
  return found;
}

/** Several seeds as one line: at each batch the median, and from the lowest to the highest. */
function bandOf(curves, xName, yName) {
  const at = new Map();
  for (const curve of curves) {
    for (const point of pointsOf(curve, xName, yName)) {
      if (!at.has(point.batch)) at.set(point.batch, []);
      at.get(point.batch).push(point);
    }
  }
  return [...at.keys()].sort((a, b) => a - b).map((batch) => {
    const points = at.get(batch);
    const ys = points.map((point) => point.y).sort((a, b) => a - b);
    const middle = ys.length >> 1;
    const y = ys.length % 2 ? ys[middle] : Math.sqrt(ys[middle - 1] * ys[middle]);
    const x = points.reduce((sum, point) => sum + point.x, 0) / points.length;
    return { x, y, low: ys[0], high: ys[ys.length - 1], batch, points, i: points[0].i, curve: points[0].curve };
  });
}

/** The lines of a panel: { series, points, band } each, bands where several seeds are drawn as one. */
function linesOf(panel, curves, settings) {
  return panel.series.flatMap((series) => {
    const own = series.curves.map((index) => curves[index]);
    if (own.length > 1 && settings.seeds === "band") {
      return [{ series, curves: own, band: true, points: bandOf(own, settings.x, settings.y) }];
    }
    return own.map((curve) => ({
      series, curves: [curve], band: false, points: pointsOf(curve, settings.x, settings.y),
    }));
  });
}

/** Where to mark a line: the first unstable evaluation, the first after the start, and where a run stopped. */
function marksOf(line, yName, warmUp) {
  const found = [];
  for (const curve of line.curves) {
    const near = (batch) => {
      const before = line.points.filter((point) => point.batch <= batch);
      return before.length ? before[before.length - 1] : line.points[0];
    };
    if (yName === "own" && line.points.length) {
      // The first steps throw nearly every run about: a hollow mark. After that it means more: a full one.
      for (const batch of curve.unstable) found.push({ kind: batch < warmUp ? "early" : "late", point: near(batch), curve });
    }
    if (curve.state === "stopped" && line.points.length) {
      found.push({ kind: "stopped", point: near(curve.stopped_at ?? Infinity), curve });
    }
  }
  return found;
}

/** The range that holds every point, a little wider; `top` bounds y where curves run far off. */
function rangeOf(lines, axis, logarithmic, top) {
  const values = lines.flatMap((line) => line.points.flatMap((p) => (axis === "y" && line.band ? [p.low, p.high] : [p[axis]])));
  if (!values.length) return [1, 10];
  let lo = values.reduce((a, b) => Math.min(a, b));
  let hi = values.reduce((a, b) => Math.max(a, b));
  if (top) hi = Math.min(hi, top);
  if (hi <= lo) [lo, hi] = lo > 0 ? [lo / 1.5, lo * 1.5] : [lo - 1, lo + 1];
  if (!logarithmic) {
    const room = (hi - lo) * 0.04;
    if (lo < 0) return [lo - room, hi + room];
    // A linear axis that nearly reaches zero may as well start there.
    return [lo < 0.25 * hi ? 0 : lo - room, hi + (top === hi ? 0 : room)];
  }
  const room = (hi / lo) ** 0.03;
  return [lo / room, top === hi ? hi : hi * room];
}

/**
 * Runs that explode would press all others flat: the first view then ends a little above where
 * training began (an untrained model guesses among |V| symbols), and the panel says what it leaves out.
 */
function naturalTop(lines, figureTop) {
  if (figureTop) return figureTop;
  const starts = lines.filter((line) => line.points.length).map((line) => line.points[0].y);
  if (!starts.length) return null;
  const usual = 1.3 * starts.reduce((a, b) => Math.max(a, b));
  const highest = lines.flatMap((line) => line.points.map((point) => point.y)).reduce((a, b) => Math.max(a, b));
  return highest > 2 * usual ? usual : null;
}
