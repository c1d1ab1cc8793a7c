"use strict";
// Keyboard, mouse and files of the review page.

function focusCard(card) {
  if (!grid.cards.includes(card) || card === view.card) return;
  [view.card, view.row] = [card, 0];
  draw();
}

// Make another label of the card the current one.
function goTo(index) {
  const ids = view.card ? shown(view.card) : [];
  if (!ids.length) return;
  const list = listOf(view.card),
    rows = list.children,
    { start } = partOf(view.card),
    before = rows[view.row - start];
  view.row = Math.max(0, Math.min(ids.length - 1, index));
  if (partOf(view.card).start !== start) draw();
  else {
    if (before) unmarkCurrent(before);
    markCurrent(rows[view.row - start]);
    list.setAttribute("aria-activedescendant", rows[view.row - start].id);
    if (measured()) draw();
  }
  reveal();
}

const step = (by) => goTo(view.row + by);

function turn(by) {
  const { cards } = grid;
  const next = cards[Math.max(0, Math.min(cards.length - 1, cards.indexOf(view.card) + by))];
  if (next) focusCard(next);
  reveal();
}

function showSelection() {
  for (const row of $("cards").querySelectorAll(".row")) row.ariaSelected = view.selected.has(row.dataset.id);
}

function select(ids, on) {
  for (const id of ids) on ? view.selected.add(id) : view.selected.delete(id);
  showSelection();
  const elsewhere = [...view.selected].filter((id) => !model.cards.get(view.card).has(id)).length;
  say(
    view.selected.size
      ? view.selected.size + " selected" + (elsewhere ? ", " + elsewhere + " of them in other cards" : "")
      : "",
  );
}

function toggle() {
  const id = shown(view.card ?? "")[view.row];
  if (id) select([id], !view.selected.has(id));
}

function selectAll() {
  const ids = shown(view.card ?? "");
  select(ids, !ids.every((id) => view.selected.has(id)));
}

function acceptSuggestion(at) {
  const ids = chosen(),
    whole = isCluster(view.card) && !ids.some((id) => view.selected.has(id));
  const group = whole ? suggestionsFor(view.card)[at] : model.labels.get(ids[0])?.suggestions[at];
  if (group) whole ? nameCard(group) : moveTo(group);
}

const KEYS = {
  ArrowDown: () => step(1),
  j: () => step(1),
  ArrowUp: () => step(-1),
  k: () => step(-1),
  ArrowRight: () => turn(1),
  l: () => turn(1),
  ArrowLeft: () => turn(-1),
  h: () => turn(-1),
  Home: () => goTo(0),
  End: () => goTo(Infinity),
  PageDown: () => step(PAGE),
  PageUp: () => step(-PAGE),
  x: toggle,
  " ": toggle,
  a: selectAll,
  Enter: () => acceptSuggestion(0),
  1: () => acceptSuggestion(0),
  2: () => acceptSuggestion(1),
  3: () => acceptSuggestion(2),
  n: () => view.card && !isPile(view.card) && askName(),
  r: () => groupOf(view.card) !== null && askName(),
  m: () => askMove(),
  g: () => askMerge(),
  s: () => askSplit(),
  b: askAmbiguous,
  q: showQueue,
  "=": () => link("must_link"),
  "!": () => link("cannot_link"),
  c: askWhy,
  i: showDetails,
  H: showHistory,
  d: () => drop(chosen()),
  D: () => dropCard(),
  t: () => toggleKind(),
  v: () => approve(),
  u: stepBack,
  y: stepForward,
  e: download,
  "/": () => $("search").focus(),
  "?": () => $("keys").showModal(),
};

review.listen(KEYS, stepBack, stepForward);

$("cards").addEventListener("click", (event) => {
  const row = event.target.closest(".row"),
    card = event.target.closest(".card")?.dataset.card;
  if (!card || event.target.closest("a, button")) return;
  const more = event.ctrlKey || event.metaKey;
  if (card !== view.card && !more) clearSelection();
  const anchor = card === view.card ? view.row : 0;
  if (row) {
    const ids = shown(card),
      at = ids.indexOf(row.dataset.id);
    if (card !== view.card) focusCard(card);
    const range = event.shiftKey ? ids.slice(Math.min(anchor, at), Math.max(anchor, at) + 1) : [ids[at]];
    step(at - view.row);
    select(range, event.shiftKey || !view.selected.has(ids[at]));
  } else {
    focusCard(card);
    reveal();
  }
});

document.addEventListener("dragstart", (event) => {
  const row = event.target.closest?.(".row");
  if (!row) return;
  const card = row.closest(".card").dataset.card;
  view.dragging = view.selected.has(row.dataset.id) && card === view.card ? chosen() : [row.dataset.id];
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", view.dragging.join("\n"));
});
document.addEventListener("dragover", (event) => {
  const target = event.target.closest?.("[data-card]");
  for (const one of document.querySelectorAll(".target")) if (one !== target) one.classList.remove("target");
  if (!view.dragging || !target || groupOf(target.dataset.card) === null) return;
  target.classList.add("target");
  event.preventDefault();
});
document.addEventListener("drop", (event) => {
  const target = event.target.closest?.("[data-card]");
  const ids = view.dragging;
  view.dragging = null;
  for (const one of document.querySelectorAll(".target")) one.classList.remove("target");
  if (!ids || !target || groupOf(target.dataset.card) === null) return;
  event.preventDefault();
  moveTo(groupOf(target.dataset.card), undefined, ids);
});

function download() {
  review.give("decisions.yaml", exportText(model, data.inputs), "application/yaml");
  say("exported " + model.decisions.length + " decisions");
}

function open(text, from) {
  try {
    importText(model, text, data.decisions);
    settle(model.order, "opened " + model.decisions.length + " decisions from " + from);
  } catch (error) {
    say("cannot open " + from + ": " + error.message);
  }
}

// What was decided survives a closed tab, where the browser lets a page store anything. It is written once the page
// is idle.
let waiting = 0;
const save = () => (waiting ||= setTimeout(keep, 200));

function keep() {
  clearTimeout(waiting);
  waiting = 0;
  review.keep(STORE, exportText(model, data.inputs));
}

$("undo").onclick = stepBack;
$("redo").onclick = stepForward;
$("export").onclick = download;
$("skip").onclick = (event) => (event.preventDefault(), reveal());
$("import").onclick = () => $("file").click();
$("help").onclick = () => $("keys").showModal();
$("keys-close").onclick = () => $("keys").close();
$("file").onchange = async () => {
  const [file] = $("file").files;
  if (file) open(await file.text(), file.name);
  $("file").value = "";
};
$("search").oninput = () => {
  view.query = $("search").value.trim().toLowerCase();
  view.row = 0;
  layout();
  say(view.query ? visibleCards().length + " cards match" : "");
};
$("open-only").onchange = () => (layout(), say(""));
new ResizeObserver(() => document.documentElement.style.setProperty("--bar", $("bar-box").offsetHeight + "px")).observe(
  $("bar-box"),
);
layout();
say("");
void checkApprovals();
let frame = 0;
const drawSoon = () => (frame ||= requestAnimationFrame(() => ((frame = 0), draw())));
window.addEventListener("pagehide", () => waiting && keep());
window.addEventListener("scroll", drawSoon, { passive: true });
new ResizeObserver(drawSoon).observe($("cards"));
// A dialog gives the keyboard back to what had it; where that is gone, to the current card.
for (const dialog of document.querySelectorAll("dialog"))
  dialog.addEventListener("close", () => {
    const holder = document.activeElement;
    if (holder === document.body || dialog.contains(holder)) listOf(view.card)?.focus({ preventScroll: true });
  });
const earlier = review.kept(STORE);
if (earlier && earlier !== exportText(model, data.inputs)) open(earlier, "your last visit");
