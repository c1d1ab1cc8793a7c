// The field to search a class in: a combobox as the ARIA practices describe it. Typing lists the matches, arrows walk
// through them, Enter takes one, Escape closes the list.
"use strict";

hbench.search = (() => {
  const MOST = 40;

  function field(input, list, classes, levels, choose) {
    const lower = classes.map((each) => each.name.toLowerCase());
    let shown = [];
    let active = -1;

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

    function mark(number) {
      active = number;
      [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === number)));
      if (number < 0) return input.removeAttribute("aria-activedescendant");
      input.setAttribute("aria-activedescendant", `match-${number}`);
      list.children[number].scrollIntoView({ block: "nearest" });
    }

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
