// Decides about suspects, by keys and buttons, and exports what was decided as a table that a build reads.
"use strict";

(() => {
  const at = (id) => document.getElementById(id);
  const cards = [...document.querySelectorAll(".suspect")];
  const stored = `hbench-audit-${at("audit").dataset.fingerprint}`;
  const decided = new Map(); // by item: a decision
  const steps = review.steps(); // each {card, before, after}

  const keep = () => review.keep(stored, JSON.stringify(Object.fromEntries(decided)));

  function show(card) {
    const decision = decided.get(card.dataset.item);
    if (decision) card.dataset.decided = decision;
    else delete card.dataset.decided;
    for (const button of card.querySelectorAll("[data-decision]"))
      button.setAttribute("aria-pressed", String(button.dataset.decision === decision));
  }

  function tell() {
    const left = cards.length - decided.size;
    at("said").textContent = `${decided.size} decided, ${left} left`;
    at("undo").disabled = !steps.made.length;
    at("redo").disabled = !steps.takenBack.length;
    at("export").disabled = !decided.size;
  }

  function set(item, decision) {
    if (decision) decided.set(item, decision);
    else decided.delete(item);
    for (const card of cards) if (card.dataset.item === item) show(card);
    keep();
    tell();
  }

  function decide(card, decision) {
    const item = card.dataset.item;
    steps.add({ card, before: decided.get(item), after: decision });
    set(item, decision);
    move(card, 1);
  }

  function turn(step, decision) {
    if (!step) return;
    set(step.card.dataset.item, step[decision]);
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
    const merged = new Set();
    for (const card of cards) {
      const { item, label, proposed } = card.dataset;
      const decision = decided.get(item);
      if (!decision) continue;
      if (decision !== "merge") {
        lines.push([item, decision, label, decision === "relabel" ? proposed : ""]);
      } else if (!merged.has(label)) {
        merged.add(label);
        lines.push(["", "merge", label, proposed]);
      }
    }
    return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }

  const save = () => review.give("decisions.csv", rows(), "text/csv");

  // A key acts on the card that has the keyboard, or on the first one.
  const on = (act) => () => {
    const card = document.activeElement.closest(".suspect") ?? cards[0];
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
  const known = new Set(cards.map((card) => card.dataset.item));
  const earlier = JSON.parse(review.kept(stored) ?? "{}");
  for (const [item, decision] of Object.entries(earlier)) if (known.has(item)) decided.set(item, decision);
  cards.forEach(show);
  at("undo").addEventListener("click", undo);
  at("redo").addEventListener("click", redo);
  at("export").addEventListener("click", save);
  at("tools").hidden = false;
  tell();
})();
