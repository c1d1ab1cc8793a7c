// Decides about suspects and copies, by keys and buttons, and exports what was decided as a table that a build reads.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll(".case")];
  const items = new Set(cards.map((card) => card.dataset.item)); // an item may have several cards
  const stored = `hbench-audit-decisions-${at("audit").dataset.fingerprint}`;
  const decided = new Map(); // by item: {decision, path}
  const steps = review.steps(); // each {card, before, after}

  const keep = () => review.keep(stored, JSON.stringify(Object.fromEntries(decided)));

  // What a button of a card decides: a new label is the one that this card proposes.
  function meant(card, decision) {
    const takesPath = decision === "relabel" || decision === "merge";
    return { decision, path: takesPath ? card.dataset.proposed : "" };
  }

  const isSame = (one, other) => one?.decision === other.decision && one.path === other.path;

  function show(card) {
    const found = decided.get(card.dataset.item);
    if (found) card.dataset.decided = found.decision;
    else delete card.dataset.decided;
    for (const button of card.querySelectorAll("[data-decision]"))
      button.setAttribute("aria-pressed", String(isSame(found, meant(card, button.dataset.decision))));
  }

  function tell() {
    const left = items.size - decided.size;
    at("said").textContent = `${decided.size} decided, ${left} left`;
    at("undo").disabled = !steps.made.length;
    at("redo").disabled = !steps.takenBack.length;
    at("export").disabled = !decided.size;
  }

  function set(item, found) {
    if (found) decided.set(item, found);
    else decided.delete(item);
    for (const card of cards) if (card.dataset.item === item) show(card);
    keep();
    tell();
  }

  function decide(card, decision) {
    if (!card.querySelector(`[data-decision=${decision}]`)) return;
    const item = card.dataset.item;
    const after = meant(card, decision);
    steps.add({ card, before: decided.get(item), after });
    set(item, after);
    move(card, 1);
  }

  function turn(step, side) {
    if (!step) return;
    set(step.card.dataset.item, step[side]);
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
    const lines = [["item", "decision", "label", "path"]];
    const labels = new Map(cards.map((card) => [card.dataset.item, card.dataset.label]));
    const merged = new Set();
    for (const [item, label] of labels) {
      const { decision, path } = decided.get(item) ?? {};
      if (!decision) continue;
      if (decision !== "merge") lines.push([item, decision, label, path]);
      else if (!merged.has(label)) lines.push(["", decision, label, path]);
      if (decision === "merge") merged.add(label);
    }
    return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
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
  const earlier = JSON.parse(review.kept(stored) ?? "{}");
  for (const [item, found] of Object.entries(earlier)) if (items.has(item)) decided.set(item, found);
  cards.forEach(show);
  at("undo").addEventListener("click", undo);
  at("redo").addEventListener("click", redo);
  at("export").addEventListener("click", save);
  at("tools").hidden = false;
  tell();
})();
