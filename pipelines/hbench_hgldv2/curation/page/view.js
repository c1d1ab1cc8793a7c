"use strict";
// What the page looks at: the current card and label, the search, the selection; and what follows from them and the
// model.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const model = makeModel(data);
const FIRST = 12; // labels shown of a card that is not worked on
const FIRST_OF_GROUP = 6; // what is decided needs less room
const PICTURES = 4; // of a card
const PAGE = 60; // labels of the current card shown at once
const STORE = "hbench-review-" + data.inputs.labels_sha256 + data.inputs.clusters_sha256;
const view = { card: null, row: 0, selected: new Set(), approved: new Map(), query: "", dragging: null, picked: null };
const versions = new Map(); // how often a card has changed
const changed = (card) => versions.set(card, (versions.get(card) ?? 0) + 1);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const plural = (count, what) => count.toLocaleString("en") + " " + what + (count === 1 ? "" : "s");
const inLandmarks = (count) => plural(count, data.counted);
const groupOf = (card) => (card && card.startsWith("g:") ? card.slice(2) : null);
const kindOf = (group) => model.kinds.get(group) ?? data.kind_names[0];
// The kinds of groups to choose from: those the page came with, then those that were typed here.
const allKinds = () => [...new Set([...data.kind_names, ...model.kinds.values()])].filter(Boolean);
const COLOURS = 4; // of kinds, in review.css; further kinds begin again
const colourOf = (kind) => "kind" + (Math.max(0, allKinds().indexOf(kind)) % COLOURS);
const kindAfter = (kind) => allKinds()[(allKinds().indexOf(kind) + 1) % allKinds().length];
const PILES = { dropped: "Dropped", ambiguous: "Ambiguous, left open" };
const isCluster = (card) => Boolean(card?.startsWith("c:"));
const titleOf = (card) => groupOf(card) ?? PILES[card] ?? data.cluster_names[Number(card.slice(2))] + " …";

const matches = (id) => model.labels.get(id).text.includes(view.query);
const isWhole = (card) => !view.query || groupOf(card)?.toLowerCase().includes(view.query);
const shown = (card) => (isWhole(card) ? membersOf(model, card) : membersOf(model, card).filter(matches));

function visibleCards() {
  const undecidedOnly = $("open-only").checked;
  return model.order.filter(
    (card) =>
      model.cards.get(card).size &&
      (!undecidedOnly || isCluster(card)) &&
      (isWhole(card) || membersOf(model, card).some(matches)),
  );
}

// The labels of a card that are in the document: the page the current label is on, the first ones elsewhere.
function partOf(card) {
  if (card === view.card) return { start: Math.floor(view.row / PAGE) * PAGE, size: PAGE };
  return { start: 0, size: groupOf(card) === null ? FIRST : FIRST_OF_GROUP };
}

// The groups a card's labels suggest most, each label counting its landmarks and its first suggestion twice.
const suggested = new Map(); // card -> [its version, the groups]
function suggestionsFor(card) {
  const version = versions.get(card) ?? 0;
  if (suggested.get(card)?.[0] !== version) suggested.set(card, [version, countSuggestions(card)]);
  return suggested.get(card)[1];
}

function countSuggestions(card) {
  const votes = new Map();
  for (const id of model.cards.get(card)) {
    const label = model.labels.get(id);
    label.suggestions.forEach((group, at) =>
      votes.set(group, (votes.get(group) ?? 0) + (1 + label.landmarks) * (at ? 1 : 2)),
    );
  }
  const best = [...votes]
    .sort((a, b) => b[1] - a[1])
    .slice(0, 3)
    .map(([group]) => group);
  return best.length ? best : [data.cluster_names[Number(card.slice(2))]].filter(Boolean);
}

// The group a label's own vector suggests, where that is not what its card is or would be named.
function hintOf(label, card) {
  const [own] = label.suggestions;
  const expected = groupOf(card) ?? (isCluster(card) ? suggestionsFor(card)[0] : null);
  return own && expected && own !== expected ? own : null;
}

function say(text) {
  const status = $("status");
  status.textContent = text;
  for (const fading of status.getAnimations()) fading.cancel();
  status.animate([{ opacity: 1 }, { opacity: 1, offset: 0.9 }, { opacity: 0 }], { duration: 5000, fill: "forwards" });
}
