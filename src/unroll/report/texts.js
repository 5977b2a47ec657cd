// Test text, coloured by surprise, for one run or two.

const LEVELS = [1, 2, 4, 8]; // bits: probability 1/2, 1/4, 1/16, 1/256
const LEVEL_WORDS = ["below 1 bit", "1 to 2", "2 to 4", "4 to 8", "8 bits and more"];

const surpriseLevel = (bits) => LEVELS.filter((edge) => bits >= edge).length;

function textsBlock(block) {
  const bitsOf = (run, i) => (i ? run.bits[i - 1] / block.steps : null);
  const kindsOf = (run) => block.texts[run.text].map((_, i) => (i ? `l${surpriseLevel(bitsOf(run, i))}` : "first"));
  const meanOf = (run) => run.bits.reduce((sum, bits) => sum + bits, 0) / Math.max(run.bits.length, 1) / block.steps;

  /** What a run thought of a token, and what it expected instead. */
  const thought = (run, i) => {
    const bits = bitsOf(run, i);
    if (bits === null) return [make("p", {}, "The first token: nothing comes before it that could predict it.")];
    const from = (i - 1) * 2 * run.alternatives;
    const odds = Array.from({ length: run.alternatives }, (_, k) => [run.names[run.likeliest[from + 2 * k]], run.likeliest[from + 2 * k + 1] / 10]);
    return [make("p", {}, make("b", {}, `${numberWords(bits, 3)} bits`), ` (probability ${shareWords(2 ** -bits)})`),
      make("p", {}, "expected: ", ...odds.flatMap(([name, share], k) => [k ? ", " : "", make("code", {}, bdi(quotedToken(name))), ` ${numberWords(share, 3)} %`]))];
  };

  const show = (first, second) => {
    const runs = second ? [first, second] : [first];
    const same = second && first.text === second.text;
    const texts = [];
    const facts = runs.map(() => make("div", { class: "thought" }, make("p", {}, "Point at a token, or go to one with the arrow keys.")));
    const live = make("p", { class: "unseen", "aria-live": "polite" });
    const read = (which) => (at) => {
      runs.forEach((run, other) => {
        if (other !== which && !same) return;
        texts[other].mark(at);
        facts[other].replaceChildren(make("p", { class: "token" }, make("code", {}, bdi(quotedToken(block.texts[run.text][at]))), ` token ${numberWords(at + 1)}`), ...thought(run, at));
      });
      const run = runs[which];
      live.textContent = `${quotedToken(block.texts[run.text][at])}: ${at ? `${numberWords(bitsOf(run, at), 3)} bits` : "the first token"}`;
    };
    runs.forEach((run, which) => texts.push(new ColouredText(`Test text, ${run.label}`, block.texts[run.text], kindsOf(run), read(which))));
    return [make("div", { class: "columns" }, ...runs.map((run, which) => make("div", { class: "column" },
      make("h3", {}, bdi(run.label)),
      make("p", { class: "about" }, bdi(run.title), `, ${run.procedure}: ${numberWords(meanOf(run), 4)} bits a token in the mean`),
      texts[which].element, facts[which]))), live];
  };

  return make("div", {}, colourKey("bits of surprise", LEVEL_WORDS.map((words, i) => [`l${i}`, words])),
    beside(block.runs, { first: 0, second: another(block.runs) }, show));
}

const shareWords = (share) => `${numberWords(100 * share, 2)} %`;
