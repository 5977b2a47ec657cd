// The blocks that sections are made of: a function for each kind, from its data (`blocks.py`) to elements.

const BLOCKS = {
  words: (block) => make("p", { class: "about" }, bdi(block.text)),
  heading: (block) => make("h3", { class: "whose" }, bdi(block.text)),
  lead: (block) => make("p", { class: "lead" }, bdi(block.text)),
  notice: (block) => make("p", { class: "notice" }, bdi(block.text)),
  folded: (block) => make("details", { class: "folded" }, make("summary", {}, bdi(block.summary)), make("p", {}, bdi(block.text))),
  table: (block) => tableBlock(block.title, block.columns, block.rows),
  drift: (block) => new DriftFigure(block).element,
  texts: (block) => textsBlock(block),
  samples: (block) => samplesBlock(block),
  units: (block) => unitsBlock(block),
};

/** The blocks of a section. What they hold is drawn when the reader comes near, so that a large page opens at once. */
function blocksOf(part) {
  return part.blocks.map((block) => (LATE.includes(block.kind) ? whenNear(() => BLOCKS[block.kind](block)) : BLOCKS[block.kind](block)));
}

const LATE = ["texts", "samples", "units"];

/** A place that is filled when it comes near the window, or is printed. */
function whenNear(build) {
  const place = make("div", { class: "late" });
  const fill = () => {
    watcher.disconnect();
    if (!place.hasChildNodes()) place.append(build());
  };
  const watcher = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && fill(), { rootMargin: "600px" });
  watcher.observe(place);
  window.addEventListener("beforeprint", fill, { once: true });
  return place;
}
