// Two runs next to each other, which the reader chooses.

let choices = 0;

/**
 * Selects for one run and, where there are several, for another beside it; `show(first, second)` makes what stands
 * below, where second is null if one run is shown alone.
 */
function beside(runs, { first = 0, second = null }, show) {
  const place = make("div", { class: "beside" });
  const chosen = [first, second];
  const fill = () => place.replaceChildren(...[show(runs[chosen[0]], chosen[1] === null ? null : runs[chosen[1]])].flat());
  const select = (words, which, none) => {
    const id = `choice-${(choices += 1)}`;
    return [make("label", { for: id }, words), make("select", { id, onchange: (event) => {
      chosen[which] = event.target.value === "" ? null : Number(event.target.value);
      fill();
    } }, none ? make("option", { value: "", selected: chosen[which] === null }, none) : null,
    ...runs.map((run, i) => make("option", { value: i, selected: chosen[which] === i }, run.label)))];
  };
  fill();
  const controls = make("div", { class: "controls choose" }, ...select("Run", 0), ...(runs.length > 1 ? select("beside", 1, "nothing") : []));
  return make("div", {}, controls, place);
}

/** The first run of another setting than the first, to stand beside it. */
const another = (runs) => (runs.length > 1 ? runs.length - 1 : null);
