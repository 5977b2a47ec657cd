// Hidden units by selectivity, and a text coloured by the chosen one.

const HEATS = 4; // strengths of a colour on either side of 0
let unitLists = 0;

function unitsBlock(block) {
  const values = (unit) => Array.from(unit.activation, (digit) => ((block.digits.indexOf(digit) - block.middle) / block.middle) * unit.largest);
  const kindOf = (value, largest) => {
    const strength = Math.round((Math.abs(value) / largest) * HEATS);
    return strength ? `${value > 0 ? "p" : "n"}${strength}` : "";
  };

  const show = (first, second) => [first, ...(second ? [second] : [])].map((run) => {
    const tokens = block.texts[run.text];
    let now = values(run.units[0]);
    let chosen = run.units[0];
    const title = make("p", { class: "about" });
    const fact = make("div", { class: "thought", "aria-live": "polite" }, make("p", {}, "Point at a token, or go to one with the arrow keys."));
    const text = new ColouredText(`Test text by a unit, ${run.label}`, tokens, [], (at) => {
      fact.replaceChildren(make("p", {}, make("code", {}, bdi(quotedToken(tokens[at]))), ` token ${numberWords(at + 1)}: `, make("b", {}, now[at].toFixed(2).replace("-", "−"))));
    });
    const choose = (unit) => {
      chosen = unit;
      now = values(unit);
      text.colour(now.map((value) => kindOf(value, unit.largest)));
      title.replaceChildren(`${chosen.name}: follows the `, make("b", {}, unit.feature), "; highest at ", make("b", {}, bdi(unit.highest)), ", lowest at ", make("b", {}, bdi(unit.lowest)), `; activations up to ${numberWords(unit.largest, 3)}`);
    };
    choose(run.units[0]);
    const list = `units-${(unitLists += 1)}`;
    const rows = run.units.map((unit, i) => make("label", { class: "unit" },
      make("input", { type: "radio", name: list, checked: i === 0, onchange: () => choose(unit) }),
      make("span", { class: "name" }, unit.name), bar(unit.selectivity), make("span", { class: "share" }, unit.selectivity.toFixed(2)),
      make("span", { class: "feature" }, unit.feature)));
    return make("div", { class: "units" },
      make("h3", { class: "whose" }, bdi(run.label)),
      make("div", { class: "columns uneven" },
        make("fieldset", { class: "column list" }, make("legend", {}, `The most selective ${run.units.length} of ${numberWords(run.of)} units`), ...rows,
          make("p", { class: "about" }, `Chance may give up to ${run.chance.toFixed(2)}.`)),
        make("div", { class: "column" }, title, text.element, fact)));
  });

  const key = [["n4", "lowest"], ["n2", "below 0"], ["", "0"], ["p2", "above 0"], ["p4", "highest"]];
  return make("div", {}, colourKey("activation", key), beside(block.runs, { first: 0 }, show));
}

/** A share as a bar; its number stands beside it. */
function bar(share) {
  const picture = draw("svg", { class: "share-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(draw("rect", { class: "back", width: 100, height: 8, rx: 2 }), draw("rect", { class: "full", width: Math.max(0, Math.min(100, 100 * share)), height: 8, rx: 2 }));
  return picture;
}
