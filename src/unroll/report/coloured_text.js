// A text whose tokens have a colour each. One stop of the Tab key; arrow keys go from token to token.

class ColouredText {
  /** `kinds` has a class for each token; `onRead(index)` is called with the token that is read, or null. */
  constructor(label, tokens, kinds, onRead) {
    Object.assign(this, { tokens, onRead, at: null });
    this.spans = tokens.map((token, i) => make("span", { class: kinds[i] || null, "data-at": i }, token));
    this.element = make("div", {
      class: "text", tabindex: 0, role: "group", "aria-roledescription": "coloured text",
      "aria-label": `${label}. Arrow keys go from token to token.`, dir: "ltr",
      onkeydown: (event) => this.key(event),
      onpointerover: (event) => this.pointed(event),
      onclick: (event) => this.pointed(event),
    }, ...this.spans);
  }

  colour(kinds) {
    this.spans.forEach((span, i) => { span.className = kinds[i] || ""; });
    if (this.at !== null) this.spans[this.at].classList.add("at");
  }

  pointed(event) {
    const at = event.target.dataset.at;
    if (at !== undefined) this.read(Number(at));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.tokens.length - 1;
    const now = this.at === null ? -1 : this.at;
    const to = { ArrowRight: now + 1, ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last, ArrowDown: this.below(now, 1), ArrowUp: this.below(now, -1) }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.read(clamp(to, 0, last));
    this.show();
  }

  /** The token that stands in the next line, or the one before, nearest to the one that is read. */
  below(now, direction) {
    if (now < 0) return 0;
    const from = this.spans[now].getBoundingClientRect();
    let [best, nearest, line] = [now, Infinity, null];
    for (let i = now + direction; i >= 0 && i < this.spans.length; i += direction) {
      const box = this.spans[i].getBoundingClientRect();
      const apart = (box.top - from.top) * direction;
      if (apart < 4) continue;
      line ??= apart;
      if (apart > line + 4) break;
      const distance = Math.abs(box.left - from.left);
      if (distance < nearest) [best, nearest] = [i, distance];
    }
    return best;
  }

  /** Keep the token in sight within its own box, without moving the page. */
  show() {
    const span = this.spans[this.at];
    const { scrollTop, clientHeight } = this.element;
    const top = span.offsetTop - this.element.offsetTop;
    if (top < scrollTop) this.element.scrollTop = top - 8;
    else if (top + span.offsetHeight > scrollTop + clientHeight) this.element.scrollTop = top + span.offsetHeight - clientHeight + 8;
  }

  read(at) {
    this.mark(at);
    this.onRead(at);
  }

  mark(at) {
    if (this.at !== null) this.spans[this.at].classList.remove("at");
    this.at = at;
    if (at !== null) this.spans[at].classList.add("at");
  }
}

/** A token for a sentence: “the”. */
const quotedToken = (token) => `“${token.replace(/\n/g, "")}”`;

/** Classes with a swatch and words each. */
const colourKey = (label, entries) => make("ul", { class: "key", "aria-label": label }, ...entries.map(([kind, words]) => make("li", { class: kind }, words)));
