// From values to pixels, and from values to words. Nothing here knows about curves or the page.

/** A scale from [lo, hi] to pixels [from, to]; both ends of a logarithmic one must be positive. */
function makeScale(logarithmic, lo, hi, from, to) {
  const bend = logarithmic ? Math.log10 : (value) => value;
  const unbend = logarithmic ? (value) => 10 ** value : (value) => value;
  const [a, b] = [bend(lo), bend(hi)];
  return {
    logarithmic, lo, hi,
    at: (value) => from + ((bend(value) - a) / (b - a)) * (to - from),
    from: (pixel) => unbend(a + ((pixel - from) / (to - from)) * (b - a)),
  };
}

/** Where ticks stand: at most about `most` of them, on numbers that people count by. */
function ticksOf(scale, most) {
  if (!scale.logarithmic) return linearTicks(scale.lo, scale.hi, most);
  const first = Math.floor(Math.log10(scale.lo));
  const last = Math.ceil(Math.log10(scale.hi));
  for (const steps of [[1, 1.5, 2, 3, 4, 5, 6, 8], [1, 2, 3, 5], [1, 2, 5], [1, 3], [1]]) {
    const found = [];
    for (let decade = first; decade <= last; decade += 1) {
      for (const step of steps) {
        const value = step * 10 ** decade;
        if (value >= scale.lo * (1 - 1e-9) && value <= scale.hi * (1 + 1e-9)) found.push(value);
      }
    }
    if (found.length <= most && found.length >= 3) return found;
  }
  if (last - first <= 2) return linearTicks(scale.lo, scale.hi, most); // a stretch too short for decades
  const apart = Math.ceil((last - first) / most);
  const found = [];
  for (let decade = first; decade <= last; decade += apart) {
    const value = 10 ** decade;
    if (value >= scale.lo && value <= scale.hi) found.push(value);
  }
  return found;
}

function linearTicks(lo, hi, most) {
  const rough = (hi - lo) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9; k += 1) found.push(k * step);
  return found;
}

/** A tick's label: 200, 12.8k, 0.05. */
function tickWords(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return size >= 1000 ? value.toLocaleString("en-GB", { maximumFractionDigits: 0 }) : trim(value);
}

const trim = (value) => String(Number(value.toPrecision(4)));

/** A number for reading: four digits that count, thousands separated; `least` keeps the zeros of a column. */
function numberWords(value, digits = 4, least = 1) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-GB");
  return value.toLocaleString("en-GB", { maximumSignificantDigits: digits, minimumSignificantDigits: least });
}

/** 0.42 s, 31 s, 2 min 5 s, 1 h 20 min. */
function secondsWords(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${numberWords(seconds, 3)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(seconds / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
