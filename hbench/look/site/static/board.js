// The rows of a leaderboard: which are shown, in which order, with which places. It moves the rows that are in the
// page.
"use strict";

hbench.board = (() => {
  const MANY = 12,
    FIRST = 8; // metrics, of more of which only the first are shown until all are asked for
  const FORMULA = /^[=+\-@\t\r]/;

  // `about.standings`: by metric [[place or null, row], …], best first; `about.filters`: of each row, name -> values.
  function table(element, about) {
    const { standings, filters } = about;
    const heads = [...element.tHead.rows[0].cells];
    const keys = heads.map((head) => head.dataset.sort);
    const rows = [...element.tBodies[0].rows]
      .sort((a, b) => a.dataset.row - b.dataset.row)
      .map((tr) => ({ tr, cells: [...tr.cells] }));
    const text = (row, key) => {
      const cell = row.cells[keys.indexOf(key)];
      return cell.dataset.text ?? cell.textContent;
    };
    const value = (row, metric) => {
      const found = row.cells[keys.indexOf(metric)].dataset.value;
      return found === undefined ? null : Number(found);
    };
    const comparable = (row, metric) =>
      value(row, metric) !== null && !row.cells[keys.indexOf(metric)].classList.contains("unranked");
    let columns = { many: false };
    const metrics = new Set(heads.map((head) => head.dataset.metric).filter(Boolean));

    function visible(row, state) {
      if (state.method && !text(row, "method").toLowerCase().includes(state.method.toLowerCase())) return false;
      return Object.entries(filters[row.tr.dataset.row]).every(
        ([key, values]) => !state[key] || values.includes(state[key]),
      );
    }

    // A board has scores, not the files: what two nets usually differ by, whichever they are.
    const NEAR =
      "two nets usually differ by as much by chance from the result above; " +
      "of two files hbench compare says it, query by query";

    // The numbers of the rows whose score is so near to that of the result above that the difference may be chance.
    function near(metric) {
      const { chance } = about.metrics.find((each) => each.key === metric);
      const ranked = standings[metric].filter(([place]) => place !== null).map(([, number]) => number);
      const score = (number) => value(rows[number], metric);
      return new Set(
        ranked.filter((number, at) => at && chance && Math.abs(score(number) - score(ranked[at - 1])) < chance),
      );
    }

    function ordered(state) {
      if (metrics.has(state.sort) || state.sort === "place") {
        const best = standings[state.metric].map(([place, number]) => [rows[number], place]);
        const ranked = best.filter(([, place]) => place !== null),
          rest = best.filter(([, place]) => place === null);
        return [...(state.down ? ranked : ranked.reverse()), ...rest].map(([row]) => row);
      }
      const sorted = [...rows].sort((a, b) => {
        const [one, two] = [text(a, state.sort), text(b, state.sort)];
        if (!one || !two) return !one - !two;
        return (state.down ? 1 : -1) * one.localeCompare(two, "en", { numeric: true });
      });
      return sorted;
    }

    // Show the rows as the state says, and give those that are visible.
    function show(state) {
      const places = new Map(standings[state.metric].map(([place, number]) => [number, place]));
      const order = ordered(state),
        close = near(state.metric);
      rows.forEach((row, number) => {
        row.cells[0].textContent = places.get(number) ?? "–";
        row.cells[0].classList.toggle("near", close.has(number));
        row.cells[0].title = close.has(number) ? NEAR : "";
        row.tr.hidden = !visible(row, state);
      });
      heads.forEach((head, at) => {
        const sorted = head.dataset.sort === state.sort;
        if (sorted)
          head.setAttribute(
            "aria-sort",
            state.down === (metrics.has(state.sort) && !("lower" in head.dataset)) ? "descending" : "ascending",
          );
        else head.removeAttribute("aria-sort");
        if (head.dataset.metric) {
          const own = head.dataset.metric === state.metric;
          head.classList.toggle("chosen", own);
          for (const row of rows) row.cells[at].classList.toggle("chosen", own);
        }
      });
      // a column that is empty in every visible row goes, but for what the rows are ordered by; of very many metrics
      // the first stay
      heads.forEach((head, at) => {
        const chosen = [state.sort, state.metric].includes(head.dataset.sort);
        const empty = !chosen && at > 0 && rows.every((row) => row.tr.hidden || !row.cells[at].textContent);
        for (const each of [head, ...rows.map((row) => row.cells[at])]) each.hidden = empty;
      });
      const scored = heads.filter((head) => head.dataset.metric && !head.hidden);
      const folded = scored.length > MANY && state.columns !== "all";
      heads.forEach((head, at) => {
        if (!folded || !scored.includes(head) || scored.indexOf(head) < FIRST || head.dataset.metric === state.metric)
          return;
        for (const each of [head, ...rows.map((row) => row.cells[at])]) each.hidden = true;
      });
      columns = {
        many: scored.length > MANY,
        folded,
        all: scored.length,
        shown: scored.filter((head) => !head.hidden).length,
      };
      element.tBodies[0].append(...order.map((row) => row.tr));
      return order.filter((row) => !row.tr.hidden);
    }

    // What a spreadsheet opens: the header and the rows, no text of which is taken for a formula.
    function csv(shown) {
      const quoted = (each) => `"${(FORMULA.test(each) ? `'${each}` : each).replaceAll('"', '""')}"`;
      const lines = shown.map((row) => keys.map((key) => text(row, key)));
      return (
        [heads.map((head) => head.textContent.trim()), ...lines].map((line) => line.map(quoted).join(",")).join("\n") +
        "\n"
      );
    }

    return { show, csv, rows, text, value, comparable, metrics: [...metrics], columns: () => columns };
  }

  return { table };
})();
