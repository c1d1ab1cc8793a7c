"use strict";
// A card and its labels as elements. A card is a heading, buttons, and a listbox of labels; the one of the current card
// takes the keyboard (roving tabindex), and says which label is the current one (aria-activedescendant).

function marked(text) {
  const at = view.query ? text.toLowerCase().indexOf(view.query) : -1;
  if (at < 0 || text.toLowerCase().length !== text.length) return [text];
  const end = at + view.query.length;
  return [text.slice(0, at), make("mark", { textContent: text.slice(at, end) }), text.slice(end)];
}

function tagsOf(label, card) {
  const hint = hintOf(label, card),
    tags = make("span", { className: "tags" });
  if (label.outlier) tags.append(make("span", { className: "doubt", textContent: "far from all others" }));
  else if (label.silhouette < 0) tags.append(make("span", { className: "doubt", textContent: "doubtful" }));
  if (hint)
    tags.append(
      make("span", {
        className: "hint",
        dir: "auto",
        textContent: "→ " + hint + "?",
        title: "The group nearest to this label",
      }),
    );
  if (isDisputed(label.id))
    tags.append(
      make("span", { className: "dispute", dir: "auto", textContent: second.name + ": " + inWords(theirs(label.id)) }),
    );
  return tags;
}

function rowOf(id, card, index, count) {
  const label = model.labels.get(id);
  const row = make(
    "li",
    {
      className: "row",
      id: "r" + label.rank,
      draggable: true,
      role: "option",
      ariaPosInSet: index + 1,
      ariaSetSize: count,
      ariaSelected: view.selected.has(id),
    },
    make("span", { className: "box", ariaHidden: "true" }),
    make(
      "span",
      { className: "what" },
      make("span", { className: "name", dir: "auto" }, ...marked(label.label)),
      " ",
      tagsOf(label, card),
    ),
    make("span", { className: "count", textContent: label.landmarks.toLocaleString("en"), title: data.counted + "s" }),
  );
  const more = [/^Q\d+$/.test(id) ? id : "", ...label.examples].filter(Boolean).join(" · ");
  if (more) row.append(make("span", { className: "more", dir: "auto", textContent: more }));
  row.dataset.id = id;
  if (card === view.card && index === view.row) markCurrent(row);
  return row;
}

// The label the keyboard is on also tells its suggestions, which 1 2 3 accept once it is selected.
function markCurrent(row) {
  const { suggestions } = model.labels.get(row.dataset.id);
  row.classList.add("at");
  if (suggestions.length)
    row.append(
      make(
        "span",
        { className: "suggested", dir: "auto" },
        "nearest: ",
        ...suggestions.flatMap((group, at) => [make("kbd", { textContent: at + 1 }), " " + group + "  "]),
      ),
    );
}

function unmarkCurrent(row) {
  row.classList.remove("at");
  row.querySelector(".suggested")?.remove();
}

function actionsOf(card) {
  const tabIndex = card === view.card ? 0 : -1;
  const button = (text, key, run, className = "") =>
    make("button", {
      textContent: text,
      title: text + " (" + key + ")",
      className,
      tabIndex,
      onclick: () => (focusCard(card), run()),
    });
  const labels = [
    button("Move…", "M", askMove),
    button("Ambiguous…", "B", askAmbiguous),
    button("Details…", "I", showDetails),
  ];
  if (isCluster(card))
    return [
      ...suggestionsFor(card).map((group, at) =>
        button(group, at ? at + 1 : "Enter", () => nameCard(group), at ? "" : "main"),
      ),
      button("Name…", "N", askName),
      ...labels,
      button("Drop all", "Shift+D", dropCard),
    ];
  if (groupOf(card) === null) return labels;
  return [
    button("Rename…", "R", askName),
    button("Merge…", "G", askMerge),
    button("Split…", "S", askSplit),
    ...labels,
    ...(allKinds().length > 1 ? [button("→ " + kindAfter(kindOf(groupOf(card))), "T", toggleKind)] : []),
    button("Approve", "V", approve),
  ];
}

function factsOf(card, ids) {
  const group = groupOf(card);
  const facts = make(
    "div",
    { className: "facts" },
    plural(ids.length, "label") + " · " + inLandmarks(landmarksOf(model, card)) + " ",
  );
  if (group === null) return facts;
  facts.append(make("span", { className: "tag " + colourOf(kindOf(group)), dir: "auto", textContent: kindOf(group) }));
  const approved = view.approved.get(card);
  if (approved)
    facts.append(
      " ",
      make("span", { className: approved === "approved" ? "tag approved" : "tag stale", textContent: approved }),
    );
  return facts;
}

// Example pictures of a card: one of each label, those of most landmarks first, then a second of each. They come with
// their labels, so a card that was split or merged has those of the labels it has now.
function picturesOf(card) {
  const ids = membersOf(model, card)
    .filter((id) => data.pictures[id])
    .sort((a, b) => model.labels.get(b).landmarks - model.labels.get(a).landmarks);
  const rounds = Array.from({ length: PICTURES }, (_, round) =>
    ids.filter((id) => data.pictures[id][round]).map((id) => [id, ...data.pictures[id][round]]),
  );
  return rounds.flat().slice(0, PICTURES);
}

function stripOf(card) {
  const pictures = picturesOf(card);
  if (!pictures.length) return [];
  const images = pictures.map(([id, title, src]) => {
    const what = model.labels.get(id).label + ": " + title;
    return make("img", { src, alt: what, title: what, draggable: false });
  });
  return [make("div", { className: "pictures" }, ...images)];
}

// Where the shown labels are among all, and the ways to the others.
function pagerOf(card, count, { start, size }) {
  if (count <= size) return [];
  const tabIndex = card === view.card ? 0 : -1;
  const turned = (text, row) =>
    make("button", { textContent: text, tabIndex, onclick: () => (focusCard(card), goTo(row)) });
  if (card !== view.card)
    return [make("div", { className: "pager" }, turned("show " + (count - size).toLocaleString("en") + " more", 0))];
  const pager = make(
    "div",
    { className: "pager" },
    (start + 1).toLocaleString("en") +
      "–" +
      Math.min(start + size, count).toLocaleString("en") +
      " of " +
      count.toLocaleString("en"),
  );
  if (start > 0) pager.append(turned("‹ before", start - size));
  if (start + size < count) pager.append(turned("next ›", start + size));
  return [pager];
}

// What a card looks like depends on this alone, beside the current row and the selection.
const stateOf = (card) =>
  [versions.get(card) ?? 0, card === view.card, partOf(card).start, view.query, ...allKinds()].join("|");

function cardElement(card) {
  const group = groupOf(card),
    ids = shown(card),
    part = partOf(card),
    current = card === view.card;
  const element = make("section", { className: "card", ariaLabel: titleOf(card), state: stateOf(card) });
  element.dataset.card = card;
  element.classList.toggle("group", group !== null);
  if (group !== null) element.classList.add(colourOf(kindOf(group)));
  element.classList.toggle("pile", card in PILES);
  element.classList.toggle("current", current);
  const rows = make("ul", {
    className: "rows",
    role: "listbox",
    ariaMultiSelectable: "true",
    ariaLabel: titleOf(card),
    tabIndex: current ? 0 : -1,
  });
  rows.append(
    ...ids.slice(part.start, part.start + part.size).map((id, at) => rowOf(id, card, part.start + at, ids.length)),
  );
  const at = current && model.labels.get(ids[view.row]);
  if (at) rows.setAttribute("aria-activedescendant", "r" + at.rank);
  element.append(
    make(
      "header",
      {},
      make("h3", { dir: "auto" }, ...marked(titleOf(card))),
      factsOf(card, ids),
      make("div", { className: "actions" }, ...actionsOf(card)),
    ),
    ...stripOf(card),
    rows,
    ...pagerOf(card, ids.length, part),
  );
  return element;
}
