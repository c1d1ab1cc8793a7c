// The field to search a class in: a combobox as the ARIA practices describe it. Typing lists the matches, arrows walk
// through them, Enter takes one, Escape closes the list.
"use strict";

hbench.search = (() => {
  const MOST = 40; // matches that are listed

  // Make an input and its list a search. `classes`: [{level, node, name, queries, mean}]; `levels`: the names of the
  // levels; `choose(each)`: called with the class that is taken, null for none. Returns `show`, which writes a class
  // into the field.
  function field(input, list, classes, levels, choose) {
    const lower = classes.map((each) => each.name.toLowerCase());
    let shown = []; // the classes that are listed
    let active = -1; // the number of the one that the arrows have walked to, -1 for none

    // The classes whose names contain a text, those that begin with it first; of no text, the first ones of all.
    function matches(text) {
      const wanted = text.trim().toLowerCase();
      if (!wanted) return classes.slice(0, MOST);
      const starting = [],
        inside = [];
      lower.forEach((name, number) => {
        const at = name.indexOf(wanted);
        if (at === 0) starting.push(classes[number]);
        else if (at > 0 && inside.length < MOST) inside.push(classes[number]);
      });
      return [...starting, ...inside].slice(0, MOST);
    }

    // A line of the list. A press must not take the focus from the field: that would close the list before the click.
    function option(each, number) {
      const item = document.createElement("li");
      item.id = `match-${number}`;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", "false");
      const name = document.createElement("span");
      name.textContent = each.name;
      const about = document.createElement("small");
      const mean = each.mean === null ? "" : ` · ${each.mean.toFixed(1)}`;
      about.textContent = `${levels[each.level]} · ${each.queries.toLocaleString("en")}${mean}`;
      item.append(name, about);
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        take(number);
      });
      return item;
    }

    // List the matches of what is typed.
    function open() {
      shown = matches(input.value);
      list.replaceChildren(...shown.map(option));
      list.hidden = !shown.length;
      input.setAttribute("aria-expanded", String(!list.hidden));
      mark(-1);
    }

    function close() {
      list.hidden = true;
      input.setAttribute("aria-expanded", "false");
      input.removeAttribute("aria-activedescendant");
      active = -1;
    }

    // Walk to a line of the list, -1 for none. The focus stays in the field; screen readers follow the attribute.
    function mark(number) {
      active = number;
      [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === number)));
      if (number < 0) return input.removeAttribute("aria-activedescendant");
      input.setAttribute("aria-activedescendant", `match-${number}`);
      list.children[number].scrollIntoView({ block: "nearest" });
    }

    // Take a line of the list. -1, which is Enter without a walk through the list, takes the first match of what was
    // typed, and no class (null) where nothing was typed.
    function take(number) {
      const chosen = input.value.trim() ? (shown[Math.max(number, 0)] ?? null) : number < 0 ? null : shown[number];
      close();
      choose(chosen);
    }

    input.addEventListener("input", open);
    input.addEventListener("focus", () => {
      input.select();
      open();
    });
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (list.hidden) open();
        const step = event.key === "ArrowDown" ? 1 : -1;
        if (shown.length) mark((active + step + shown.length + (active < 0 && step < 0 ? 1 : 0)) % shown.length);
      } else if (event.key === "Enter") {
        event.preventDefault();
        take(active);
      } else if (event.key === "Escape") {
        close();
      }
    });
    return {
      show: (chosen) => {
        input.value = chosen ? chosen.name : "";
      },
    };
  }

  return { field };
})();
