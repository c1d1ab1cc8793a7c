// Decides about suspects and copies, by keys and buttons, and exports what was decided as a table that a build reads.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll(".case")];
  const itemsOf = new Map(cards.map((card) => [card, JSON.parse(card.dataset.items)]));
  // By item, which may have several cards.
  const labels = new Map(cards.flatMap((card) => itemsOf.get(card).map((item) => [item, card.dataset.label])));
  const stored = `hbench-audit-decisions-${at("audit").dataset.fingerprint}`;
  const decided = new Map(); // by item: {decision, path}
  const steps = review.steps(); // each {card, before, after}, of all items of the card

  const keep = () => review.keep(stored, JSON.stringify(Object.fromEntries(decided)));

  // What was decided: in this browser, else as an earlier decisions.csv says.
  function earlier() {
    const given = JSON.parse(at("audit").dataset.decided);
    try {
      const found = JSON.parse(review.kept(stored)) ?? given;
      const isSound = (each) => typeof each?.decision === "string" && typeof each.path === "string";
      if (typeof found === "object" && Object.values(found).every(isSound)) return found;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
    }
    at("damaged").hidden = false;
    return given;
  }

  // What a button of a card decides: a new label is the one that this card proposes.
  function meant(card, decision) {
    const takesPath = decision === "relabel" || decision === "merge";
    return { decision, path: takesPath ? card.dataset.proposed : "" };
  }

  const isSame = (one, other) => one?.decision === other.decision && one.path === other.path;

  function show(card) {
    const found = itemsOf.get(card).map((item) => decided.get(item));
    const isOne = found.every((each) => each && isSame(each, found[0]));
    if (isOne) card.dataset.decided = found[0].decision;
    else delete card.dataset.decided;
    for (const button of card.querySelectorAll("[data-decision]"))
      button.setAttribute("aria-pressed", String(isOne && isSame(found[0], meant(card, button.dataset.decision))));
  }

  // A label that is merged into several others, which a build refuses.
  function mergedTwice() {
    const paths = new Map();
    for (const [item, { decision, path }] of decided) {
      const label = labels.get(item);
      if (decision !== "merge") continue;
      if ((paths.get(label) ?? path) !== path) return label;
      paths.set(label, path);
    }
    return null;
  }

  function tell() {
    const left = labels.size - decided.size;
    const torn = mergedTwice();
    const remark = torn ? `; ${torn} cannot be merged into two classes` : "";
    at("said").textContent = `${decided.size} decided, ${left} left${remark}`;
    at("undo").disabled = !steps.made.length;
    at("redo").disabled = !steps.takenBack.length;
    at("export").disabled = !decided.size;
  }

  function set(items, found) {
    items.forEach((item, at) => {
      if (found[at]) decided.set(item, found[at]);
      else decided.delete(item);
    });
    for (const card of cards) if (itemsOf.get(card).some((item) => items.includes(item))) show(card);
    keep();
    tell();
  }

  function decide(card, decision) {
    if (!card.querySelector(`[data-decision=${decision}]`)) return;
    const items = itemsOf.get(card);
    const after = items.map(() => meant(card, decision));
    steps.add({ card, before: items.map((item) => decided.get(item)), after });
    set(items, after);
    move(card, 1);
  }

  function turn(step, side) {
    if (!step) return;
    set(itemsOf.get(step.card), step[side]);
    step.card.focus();
  }

  const undo = () => turn(steps.back(), "before");
  const redo = () => turn(steps.again(), "after");

  function move(card, step) {
    const next = cards[cards.indexOf(card) + step];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  // A cell of a CSV, which needs quotes where it holds one, a comma or the end of a line.
  function cell(text) {
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function rows() {
    const lines = new Set(["item,decision,label,path"]); // a merge that several cards decide is one line
    for (const [item, label] of labels) {
      const { decision, path } = decided.get(item) ?? {};
      if (!decision) continue;
      const about = decision === "merge" ? "" : item;
      lines.add([about, decision, label, path].map(cell).join(","));
    }
    return [...lines].join("\n") + "\n";
  }

  const save = () => review.give("decisions.csv", rows(), "text/csv");

  // A key acts on the card that has the keyboard, or on the first one.
  const on = (act) => () => {
    const card = document.activeElement.closest(".case") ?? cards[0];
    if (card) act(card);
  };
  const KEYS = {
    k: on((card) => decide(card, "keep")),
    r: on((card) => decide(card, "relabel")),
    d: on((card) => decide(card, "drop")),
    m: on((card) => decide(card, "merge")),
    u: undo,
    y: redo,
    ArrowDown: on((card) => move(card, 1)),
    ArrowUp: on((card) => move(card, -1)),
  };
  review.listen(KEYS, undo, redo);

  for (const card of cards) {
    card.querySelector(".choices").hidden = false;
    for (const button of card.querySelectorAll("[data-decision]"))
      button.addEventListener("click", () => decide(card, button.dataset.decision));
  }
  for (const [item, found] of Object.entries(earlier())) if (labels.has(item)) decided.set(item, found);
  cards.forEach(show);
  at("undo").addEventListener("click", undo);
  at("redo").addEventListener("click", redo);
  at("export").addEventListener("click", save);
  at("tools").hidden = false;
  tell();
})();
