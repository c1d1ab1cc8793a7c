"use strict";
// The grid of cards. Only cards near the window, and the current one, are in the document; the others are blank space
// of the height they had, or are thought to have.

const GAP = 14; // pixels between cards
const NARROWEST = 336; // pixels of a card, where the window has as many
const BEYOND = 600; // pixels above and below the window in which cards are drawn, too
const STRIP = Object.keys(data.pictures).length ? 84 : 0; // pixels of the pictures of a card
const HEAD = 125 + STRIP; // pixels of a card that was never drawn: its head, and each of its rows
const ROW = 48;
const grid = { cards: [], places: new Map(), elements: new Map(), heights: new Map(), columns: 1, width: 0 };

const elementOf = (card) => grid.elements.get(card);
const listOf = (card) => elementOf(card)?.querySelector(".rows");
const heightOf = (card) =>
  grid.heights.get(card) ?? HEAD + ROW * Math.min(model.cards.get(card).size, partOf(card).size);

// Bring the grid to what is to be seen now, after a decision or another search.
function layout() {
  grid.cards = visibleCards();
  if (!grid.cards.includes(view.card)) [view.card, view.row] = [grid.cards[0] ?? null, 0];
  draw();
  $("empty").hidden = grid.cards.length > 0;
  $("empty").textContent = view.query ? "Nothing matches." : "Everything is decided.";
  summary();
}

// Draw what is near the window. Heights are known only of what was drawn: so draw, measure, and draw what came near
// by it.
function draw() {
  const held = $("cards").contains(document.activeElement),
    anchor = anchored();
  for (let pass = 0; pass < 4; pass++) {
    place();
    if (anchor.card !== undefined && grid.places.has(anchor.card)) window.scrollBy(0, topOf(anchor.card) - anchor.top);
    const near = new Set(nearCards());
    for (const [card, element] of grid.elements)
      if (!near.has(card) || element.state !== stateOf(card)) discard(card, element);
    insert(near);
    if (!measured()) break;
  }
  if (held && !$("cards").contains(document.activeElement)) listOf(view.card)?.focus({ preventScroll: true });
}

function discard(card, element) {
  if (element.state !== stateOf(card)) grid.heights.delete(card);
  element.remove();
  grid.elements.delete(card);
}

// The card that stays where it is in the window while others change their heights: the current one, or the first one
// seen.
function anchored() {
  const bottom = window.innerHeight,
    seen = (card) => elementOf(card) && topOf(card) < bottom && topOf(card) + heightOf(card) > barHeight();
  const card = seen(view.card) ? view.card : grid.cards.find(seen);
  return card === undefined ? {} : { card, top: topOf(card) };
}

const barHeight = () => (getComputedStyle($("bar-box")).position === "sticky" ? $("bar-box").offsetHeight : 0);
const topOf = (card) => $("cards").getBoundingClientRect().top + (grid.places.get(card)?.top ?? 0);

// Where every card is, from the heights: row by row, each as high as its highest card.
function place() {
  const whole = $("cards").clientWidth;
  if (whole !== grid.width) grid.heights.clear();
  grid.width = whole;
  grid.columns = Math.max(1, Math.floor((whole + GAP) / (NARROWEST + GAP)));
  const width = (whole - GAP * (grid.columns - 1)) / grid.columns;
  grid.places.clear();
  let top = 0;
  for (let first = 0; first < grid.cards.length; first += grid.columns) {
    const band = grid.cards.slice(first, first + grid.columns);
    band.forEach((card, column) => grid.places.set(card, { top, left: column * (width + GAP), width }));
    top += Math.max(...band.map(heightOf)) + GAP;
  }
  $("cards").style.height = top + "px";
}

function nearCards() {
  const from = -BEYOND,
    to = window.innerHeight + BEYOND,
    origin = $("cards").getBoundingClientRect().top;
  return grid.cards.filter((card) => {
    const { top } = grid.places.get(card);
    return card === view.card || (origin + top < to && origin + top + heightOf(card) > from);
  });
}

// In the order of the cards, which is also that of the Tab key and of a screen reader.
function insert(near) {
  let before = null;
  for (const card of near) {
    if (!elementOf(card)) grid.elements.set(card, cardElement(card));
    const element = elementOf(card),
      { top, left, width } = grid.places.get(card);
    Object.assign(element.style, { top: top + "px", left: left + "px", width: width + "px" });
    const next = before ? before.nextSibling : $("cards").firstChild;
    if (element !== next) $("cards").insertBefore(element, next);
    before = element;
  }
}

function measured() {
  let different = false;
  for (const [card, element] of grid.elements) {
    const height = element.offsetHeight;
    if (height === heightOf(card)) continue;
    grid.heights.set(card, height);
    different = true;
  }
  return different;
}

// Bring the current label into the window, and the keyboard to it.
function reveal() {
  if (view.row === 0) elementOf(view.card)?.querySelector("header").scrollIntoView({ block: "nearest" });
  listOf(view.card)?.querySelector(".at")?.scrollIntoView({ block: "nearest" });
  listOf(view.card)?.focus({ preventScroll: true });
}

// Go to a card, and to a label in it, though a search hide it.
function show(card, id) {
  if (!grid.cards.includes(card) || !shown(card).includes(id ?? shown(card)[0])) {
    $("search").value = view.query = "";
    $("open-only").checked = false;
    layout();
  }
  focusCard(card);
  goTo(id === undefined ? view.row : shown(card).indexOf(id));
}

function summary() {
  let decided = 0,
    landmarks = 0,
    total = 0;
  for (const [id, place] of model.places) {
    const count = model.labels.get(id).landmarks;
    total += count;
    if (!isDecided(place)) continue;
    decided += 1;
    landmarks += count;
  }
  const percent = Math.round((100 * decided) / (model.places.size || 1));
  $("bar").style.width = percent + "%";
  $("bar").parentElement.setAttribute("aria-valuenow", percent);
  $("undo").disabled = !model.steps.made.length;
  $("redo").disabled = !model.steps.takenBack.length;
  document.body.dataset.decided = decided;
  $("summary").textContent =
    decided.toLocaleString("en") +
    " of " +
    model.places.size.toLocaleString("en") +
    " labels decided, " +
    Math.round((100 * landmarks) / (total || 1)) +
    " % of " +
    data.counted +
    "s";
  showAgreement();
  showLegend();
  listGroups();
}

// The groups in use, by name; only the entries that differ are touched.
const entries = new Map(); // group -> its button
const alphabet = new Intl.Collator("en");
function listGroups() {
  const used = model.order
    .map(groupOf)
    .filter((group) => group !== null && model.cards.get("g:" + group).size)
    .sort(alphabet.compare);
  const present = new Set(used);
  for (const [group, entry] of entries) if (!present.has(group)) (entry.remove(), entries.delete(group));
  $("none").hidden = used.length > 0;
  used.forEach((group, at) => {
    if (!entries.has(group)) entries.set(group, entryOf(group));
    const entry = entries.get(group),
      dot = "dot " + colourOf(kindOf(group)),
      count = model.cards.get("g:" + group).size.toLocaleString("en");
    if (entry.dot.className !== dot) Object.assign(entry.dot, { className: dot, title: kindOf(group) });
    if (entry.count.textContent !== count) entry.count.textContent = count;
    if ($("groups").children[at] !== entry) $("groups").insertBefore(entry, $("groups").children[at] ?? null);
  });
}

// The colour of each kind. The cards show them again where a kind was added.
let legend = "";
function showLegend() {
  const kinds = allKinds();
  if (kinds.join("\n") === legend) return;
  legend = kinds.join("\n");
  $("legend").replaceChildren(
    ...kinds.map((kind) => make("span", { dir: "auto" }, make("span", { className: "dot " + colourOf(kind) }), kind)),
  );
}

function entryOf(group) {
  const dot = make("span"),
    count = make("span", { className: "count" });
  const entry = make(
    "button",
    { dot, count, onclick: () => show("g:" + group) },
    make("span", { dir: "auto" }, dot, group),
    count,
  );
  entry.dataset.card = "g:" + group;
  return entry;
}
