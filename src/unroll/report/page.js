// The page: read the data, put the sections together.

function start() {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Curves share their grids of batches: each is written once.
  const curves = data.curves.map((curve) => ({ ...curve, batch: data.grids[curve.grid] }));
  const main = document.querySelector("main");
  const links = [];
  const section = (id, short, title, ...content) => {
    links.push([id, short]);
    main.append(make("section", { id }, make("h2", {}, bdi(title)), ...content));
  };

  const show = (part) => section(part.id, part.short, part.title, part.about ? make("p", { class: "about" }, part.about) : null, ...blocksOf(part));

  main.append(summary(data, curves));
  data.parts.filter((part) => part.leads).forEach(show);
  if (data.verdicts.length) section("verdicts", "claims", "Claims and verdicts", verdictTable(data.verdicts, data.figures));
  data.figures.forEach((figure, number) => {
    links.push([figure.id, figure.name]);
    main.append(new CurveFigure(figure, curves, number, data.warm_up).element);
  });
  data.parts.filter((part) => !part.leads).forEach(show);
  data.findings.forEach(({ id, title, about, tables }) => {
    section(id, id, title, make("p", { class: "about" }, bdi(about)),
      ...tables.flatMap(({ title, columns, rows }) => [make("h3", {}, bdi(title)), tableBlock(title, columns, rows)]));
  });
  if (data.times.length) {
    const devices = [...new Set(data.times.map((time) => [time.device, time.precision].filter(Boolean).join(", ")))];
    section("times", "times", "Times beside the paper's", make("p", { class: "about" }, "Ours on ", bdi(devices.join("; ")),
      ". A fleet trains many runs side by side; its time is divided by their number. The small number is how many times shorter than the paper's."),
      timingTables(data.times, data.paper_times));
  }
  section("every-run", "all runs", "Every run, its configuration and where it comes from",
    make("p", { class: "about" }, "Perplexities are of the test set, at the last evaluation. A heading sorts; a second click turns the order round."),
    new RunsTable(curves, data.warm_up).element);
  document.querySelector("nav").append(...links.map(([id, words]) => make("a", { href: `#${id}` }, bdi(words))));
}

/** What the page holds, in a few numbers; then everything that a reader must know before the rest. */
function summary(data, curves) {
  const trainings = new Map(curves.map((curve) => [curve.identity || curve.name, curve]));
  const seconds = [...trainings.values()].reduce((sum, curve) => sum + (curve.seconds.at(-1) || 0), 0);
  const tile = (number, words) => make("div", { class: "tile" }, make("strong", {}, number), make("span", {}, words));
  const count = (verdict) => data.verdicts.filter((each) => each.verdict === verdict).length;
  const stopped = [...trainings.values()].filter((curve) => curve.state === "stopped").length;
  const tiles = [
    tile(numberWords(trainings.size), trainings.size === 1 ? "training" : "trainings"),
    tile(numberWords(curves.length), curves.length === 1 ? "curve" : "curves"),
    tile(secondsWords(seconds), "training in all"),
    ...(stopped ? [tile(numberWords(stopped), "stopped")] : []),
    ...Object.keys(VERDICTS).filter(count).map((verdict) => tile(numberWords(count(verdict)), count(verdict) === 1 ? `claim ${verdict}` : `claims: ${verdict}`)),
  ];
  return make("div", {}, make("div", { class: "tiles" }, ...tiles),
    ...data.notes.map((note) => make("p", { class: "notice" }, bdi(note))));
}

start();
