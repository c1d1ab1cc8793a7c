// What every page of decisions has: they are made by keys, taken back, kept from visit to visit, and given as a file.
"use strict";

const review = {
  // The text kept under a name; null for none, or where the browser keeps nothing for this page.
  kept(name) {
    try {
      return localStorage.getItem(name);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      return null;
    }
  },

  // What cannot be kept can still be given as a file.
  keep(name, text) {
    try {
      localStorage.setItem(name, text);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
    }
  },

  give(name, text, type) {
    const url = URL.createObjectURL(new Blob([text], { type }));
    Object.assign(document.createElement("a"), { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  },

  // The steps that were made, the last one last, and those that were taken back, until another is made.
  steps() {
    const made = [];
    const takenBack = [];
    const turn = (from, to) => {
      const step = from.pop();
      if (step) to.push(step);
      return step;
    };
    return {
      made,
      takenBack,
      add(step) {
        made.push(step);
        takenBack.length = 0;
      },
      back: () => turn(made, takenBack),
      again: () => turn(takenBack, made),
      clear() {
        made.length = takenBack.length = 0;
      },
    };
  },

  // Call the functions of `keys` by the key that is pressed, and `back` and `again` by Ctrl+Z and Ctrl+Shift+Z (on a
  // Mac by the command key); not while a text is typed or a dialog is open.
  listen(keys, back, again) {
    const undoes = (event) => (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z";
    // Enter and the space bar press the button that has the keyboard.
    const presses = (event) => event.target.matches("button, a, select, input") && ["Enter", " "].includes(event.key);
    const actionOf = (event) => {
      if (undoes(event)) return event.shiftKey ? again : back;
      const isOther = event.ctrlKey || event.metaKey || presses(event);
      return !isOther && Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    };
    document.addEventListener("keydown", (event) => {
      if (event.target.matches("input[type=search], input[type=text]")) {
        if (event.key === "Escape" || event.key === "Enter") event.target.blur();
        return;
      }
      if (event.altKey || document.querySelector("dialog[open]")) return;
      const action = actionOf(event);
      if (!action) return;
      action();
      event.preventDefault();
    });
  },
};
