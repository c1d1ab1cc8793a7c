"use strict";
// The dialog that asks for a group.

const askName = () =>
  isCluster(view.card)
    ? ask("Name this cluster", suggestionsFor(view.card), nameCard)
    : ask("Rename “" + groupOf(view.card) + "”", [], rename);
const askMove = () =>
  chosen().length && ask("Move " + counted(chosen()) + " to", model.labels.get(chosen()[0]).suggestions, moveTo);
const askMerge = () =>
  isCluster(view.card)
    ? ask("Add this cluster to", suggestionsFor(view.card), nameCard)
    : groupOf(view.card) && ask("Merge “" + groupOf(view.card) + "” into", [], mergeInto);
const askSplit = () =>
  groupOf(view.card) &&
  chosen().length &&
  ask("Split " + counted(chosen()) + " off as", model.labels.get(chosen()[0]).suggestions, splitOff);

// The groups to choose from: likely ones first, then those in use, then those that are wanted.
const knownGroups = (first) => [
  ...new Set([
    ...first,
    ...[...model.groups.keys()].sort((a, b) => a.localeCompare(b)),
    ...Object.keys(data.known_kinds),
  ]),
];

function ask(title, first, run) {
  view.picked = { run, first, at: 0 };
  $("picker-title").textContent = title;
  $("picker-text").value = $("picker-new-kind").value = "";
  offerKinds();
  offer();
  $("picker").showModal();
  $("picker-text").focus();
}

const kindRadios = () => [...document.querySelectorAll("input[name=kind]")];
const chosenKind = () => kindRadios().find((radio) => radio.checked)?.value;

// The kinds of a new group, that of the group before it chosen.
function offerKinds() {
  const before = chosenKind() ?? data.kind_names[0];
  $("picker-kinds").replaceChildren(
    ...allKinds().map((kind) => {
      const radio = make("input", { type: "radio", name: "kind", value: kind, checked: kind === before });
      radio.onchange = () => ($("picker-new-kind").value = "");
      return make("label", { dir: "auto" }, radio, " " + kind);
    }),
  );
}

// The kind that was typed, else the chosen one. Case, spaces and hyphens do not make another kind.
function newKind() {
  const folded = (kind) => kind.replace(/[\s_-]/g, "").toLowerCase();
  const typed = $("picker-new-kind").value.trim();
  return typed ? (allKinds().find((kind) => folded(kind) === folded(typed)) ?? typed) : chosenKind();
}

function offer() {
  const typed = $("picker-text").value,
    folded = typed.trim().toLowerCase();
  const known = knownGroups(view.picked.first);
  const found = known.filter((group) => group.toLowerCase().includes(folded)).slice(0, 60);
  if (typed && !known.includes(typed)) found.push(typed);
  view.picked.choices = found;
  view.picked.at = Math.max(0, Math.min(view.picked.at, found.length - 1));
  if (typed && known.includes(typed)) view.picked.at = found.indexOf(typed);
  $("choices").replaceChildren(
    ...found.map((group, at) => {
      const item = make("li", {
        role: "option",
        id: "choice" + at,
        textContent: group,
        dir: "auto",
        onclick: () => ((view.picked.at = at), finish()),
      });
      if (!known.includes(group)) item.append(make("span", { className: "facts", textContent: "  new" }));
      item.setAttribute("aria-selected", at === view.picked.at);
      return item;
    }),
  );
  const pick = found[view.picked.at];
  $("picker-text").setAttribute("aria-activedescendant", pick ? "choice" + view.picked.at : "");
  $("picker-kind").hidden = !pick || model.groups.has(pick);
  for (const radio of kindRadios()) if (pick && radio.value === data.known_kinds[pick]) radio.checked = true;
  $("choices").children[view.picked.at]?.scrollIntoView({ block: "nearest" });
}

// A hidden field keeps the keyboard until the next frame, so a quick next key would be lost in it.
function shut() {
  $("picker-text").blur();
  $("picker").close();
}

function finish() {
  const group = view.picked.choices[view.picked.at];
  const kind = newKind();
  shut();
  if (group) view.picked.run(group, kind);
}

$("picker-text").addEventListener("input", () => ((view.picked.at = 0), offer()));
$("picker").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && event.target.type !== "radio") {
    view.picked.at = (view.picked.at + step + view.picked.choices.length) % view.picked.choices.length;
    offer();
    event.preventDefault();
  } else if (event.key === "Enter" && event.target.id !== "picker-cancel") {
    finish();
    event.preventDefault();
  }
  event.stopPropagation();
});
$("picker-ok").onclick = finish;
$("picker-cancel").onclick = shut;
