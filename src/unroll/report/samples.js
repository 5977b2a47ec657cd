// What a run writes under both procedures, with what it copies marked.

const PROCEDURE_WORDS = { windowed: "windowed: a window of k2 tokens before each", progressive: "progressive: the state runs on" };

function samplesBlock(block) {
  const column = (run, procedure) => {
    const { pieces, longest, copied } = run.procedures[procedure];
    const content = pieces.map(([text, length]) => (length
      ? make("mark", { title: `stands in the training data: up to ${numberWords(length)} tokens in one piece` }, text)
      : text));
    const words = copied === null ? "copies were not looked for: the corpus is too large" : copied ? `${numberWords(100 * copied, 3)} % copied, longest copy ${numberWords(longest)} tokens` : `nothing copied; longest match ${numberWords(longest)} tokens`;
    return make("div", { class: "column" },
      make("h3", {}, PROCEDURE_WORDS[procedure], run.own === procedure ? " (its scheme’s own)" : ""),
      make("p", { class: "about" }, words),
      make("div", { class: "text plain", tabindex: 0, role: "region", dir: "ltr", "aria-label": `${procedure}, ${run.label}` }, ...content));
  };
  const both = (run) => [make("h3", { class: "whose" }, bdi(run.label)), make("div", { class: "columns" }, ...Object.keys(run.procedures).map((name) => column(run, name)))];
  return make("div", {},
    make("ul", { class: "key", "aria-label": "marks" }, make("li", {}, make("mark", {}, "marked"), ` stands in the training data: ${block.least} tokens and more`)),
    beside(block.runs, { first: 0 }, (first, second) => [...both(first), ...(second ? both(second) : [])]));
}
