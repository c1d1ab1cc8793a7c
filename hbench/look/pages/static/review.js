// What every page of decisions does with them: kept from visit to visit, and given as a file.
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
};
