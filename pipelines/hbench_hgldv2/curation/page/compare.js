"use strict";
// A second reviewer: how far the two agree, and the labels to talk about, those of most landmarks first.

const LISTED = 25; // disagreements listed at once
const second = { name: "", places: null, kinds: new Map() };

// Where a label is for somebody who has decided it: the name of its group, or DROPPED; null for one that is not placed.
const placedAt = (place) => (place?.status === "group" ? place.group : place?.status === "dropped" ? DROPPED : null);
const theirs = (id) => (second.places ? placedAt(second.places.get(id)) : null);
const ours = (id) => placedAt(model.places.get(id));
const inWords = (placed) => (placed === DROPPED ? "dropped" : "“" + placed + "”");

function isDisputed(id) {
  const [a, b] = [ours(id), theirs(id)];
  return a !== null && b !== null && a !== b;
}

// The same as `agreement.kappa`: (p_o − p_e) / (1 − p_e) over [ours, theirs, weight] triples; NaN where p_e is 1.
function kappaOf(triples) {
  let total = 0,
    equal = 0;
  const mine = new Map(),
    others = new Map();
  for (const [a, b, weight] of triples) {
    total += weight;
    if (a === b) equal += weight;
    mine.set(a, (mine.get(a) ?? 0) + weight);
    others.set(b, (others.get(b) ?? 0) + weight);
  }
  let chance = 0;
  for (const [place, weight] of mine) chance += weight * (others.get(place) ?? 0);
  return {
    observed: equal / total,
    kappa: chance === total * total ? NaN : (equal / total - chance / total ** 2) / (1 - chance / total ** 2),
  };
}

// What both have placed, as [ours, theirs, landmarks, label], and κ over the labels.
function agreement() {
  const both = [];
  for (const [id, place] of model.places) {
    const a = placedAt(place),
      b = a === null ? null : theirs(id);
    if (b === null) continue;
    const label = model.labels.get(id);
    both.push([a, b, label.landmarks, label]);
  }
  return { both, plain: kappaOf(both.map(([a, b]) => [a, b, 1])), differ: both.filter(([a, b]) => a !== b) };
}

const rounded = (value) => (Number.isNaN(value) ? "undefined" : value.toFixed(3));

function showAgreement() {
  $("queue").hidden = !second.places;
  if (!second.places) return;
  const found = agreement();
  $("queue").textContent =
    second.name +
    ": κ " +
    rounded(found.plain.kappa) +
    ", " +
    found.differ.length.toLocaleString("en") +
    " to talk about";
  if ($("disputes").open) listQueue(found);
}

function listQueue({ both, plain, differ }) {
  const labels = both.length,
    weighted = kappaOf(both);
  const queue = differ.map(([, , , label]) => label).sort((a, b) => b.landmarks - a.landmarks || a.rank - b.rank);
  $("disputes-title").textContent = queue.length
    ? plural(queue.length, "label") + " to talk about with " + second.name
    : "You and " + second.name + " agree";
  $("disputes-facts").textContent = labels
    ? "Of " +
      plural(labels, "label") +
      " placed by both, " +
      rounded(plain.observed) +
      " are in the same place: Cohen’s κ\u00a0" +
      rounded(plain.kappa) +
      ". By " +
      data.counted +
      "s " +
      rounded(weighted.observed) +
      ", κ\u00a0" +
      rounded(weighted.kappa) +
      "."
    : "No label is placed by both yet.";
  const row = ({ id, label, landmarks }) => {
    const item = make(
      "li",
      {},
      make("strong", { dir: "auto", textContent: label }),
      " ",
      make("span", { className: "facts", textContent: inLandmarks(landmarks) }),
      make(
        "div",
        {},
        "you: ",
        make("span", { dir: "auto", textContent: inWords(ours(id)) }),
        " · " + second.name + ": ",
        make("span", { dir: "auto", textContent: inWords(theirs(id)) }),
      ),
      make(
        "div",
        { className: "actions" },
        make("button", {
          textContent: "Show",
          ariaLabel: "Show " + label,
          onclick: () => ($("disputes").close(), show(cardOf(model.labels.get(id), model.places.get(id)), id)),
        }),
        make("button", {
          textContent: theirs(id) === DROPPED ? "Drop it, too" : "Take " + inWords(theirs(id)),
          ariaLabel: "Put " + label + " where " + second.name + " has it: " + inWords(theirs(id)),
          onclick: () => takeTheirs(id),
        }),
      ),
    );
    item.dataset.id = id;
    return item;
  };
  $("disputes-list").replaceChildren(...queue.slice(0, LISTED).map(row));
  if (queue.length > LISTED)
    $("disputes-list").append(
      make("li", {
        className: "facts",
        textContent: "and " + (queue.length - LISTED).toLocaleString("en") + " more, of fewer " + data.counted + "s",
      }),
    );
}

function showQueue() {
  if (!second.places) return say("compare with the decisions.yaml of another reviewer first");
  listQueue(agreement());
  $("disputes").showModal();
}

function takeTheirs(id) {
  const place = second.places.get(id),
    at = [...$("disputes-list").children].findIndex((item) => item.dataset.id === id);
  place.status === "dropped" ? drop([id]) : moveTo(place.group, second.kinds.get(place.group), [id]);
  const next = $("disputes-list").children[Math.min(at, $("disputes-list").children.length - 1)];
  (next?.querySelector("button:last-child") ?? $("disputes-close")).focus();
}

function compareWith(name, places, kinds) {
  Object.assign(second, { name, places, kinds });
  for (const card of model.order) changed(card);
  layout();
}

// Another export of this page: replayed in a model of its own.
function compareFile(text, from) {
  try {
    const other = makeModel(data);
    importText(other, text, data.decisions);
    const names = other.decisions
      .slice(data.decisions.length)
      .map((decision) => decision.by)
      .filter(Boolean);
    compareWith(names.at(-1) ?? from, other.places, other.kinds);
    say("compared with " + second.name);
  } catch (error) {
    say(
      "cannot compare with " +
        from +
        ": " +
        error.message +
        "; `hbench hgldv2 review --against` compares any two files",
    );
  }
}

$("queue").onclick = showQueue;
$("compare").onclick = () => $("other-file").click();
$("other-file").onchange = async () => {
  const [file] = $("other-file").files;
  if (file) compareFile(await file.text(), file.name);
  $("other-file").value = "";
};
closing("disputes", "disputes-close");
if (data.other)
  Object.assign(second, {
    name: data.other.name,
    places: new Map(Object.entries(data.other.places)),
    kinds: new Map(Object.entries(data.other.kinds)),
  });
