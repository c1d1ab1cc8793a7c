// Rows by two metrics, with those that no other beats in both.
"use strict";

hbench.scatter = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const [LEFT, RIGHT, TOP, BOTTOM] = [58, 624, 14, 350];

  // The points that no other beats in both, by x; of equal ones the first.
  // `signs`: of x and y, −1 where lower is better.
  function front(points, [sx, sy] = [1, 1]) {
    const found = [];
    for (const point of [...points].sort((a, b) => sx * (b.x - a.x) || sy * (b.y - a.y))) {
      if (!found.length || sy * point.y > sy * found[found.length - 1].y) found.push(point);
    }
    return found.reverse();
  }

  // What lies below is far out: the first quartile less three times the distance of the quartiles (Tukey).
  function lowerFence(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const quantile = (share) => {
      const at = share * (sorted.length - 1),
        low = Math.floor(at);
      return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
    };
    return quantile(0.25) - 3 * (quantile(0.75) - quantile(0.25));
  }

  function ticks(low, high) {
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50].find((each) => (high - low) / each <= 6) ?? 50;
    const found = [];
    for (let at = Math.ceil(low / step); at * step <= high; at++) found.push(Number((at * step).toFixed(1)));
    return found;
  }

  function made(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // `points`: {x, y, words, kind}; `parts`: svg, said, count, list.
  function draw(points, names, signs, parts) {
    const [sx, sy] = signs;
    const [left, below] = points.length
      ? [lowerFence(points.map((each) => sx * each.x)), lowerFence(points.map((each) => sy * each.y))]
      : [0, 0];
    const seen = points.filter((each) => sx * each.x >= left && sy * each.y >= below);
    const best = front(points, signs);
    parts.count.textContent =
      `${points.length} rows` +
      (points.length > seen.length
        ? `; outside of the picture, far below the others: ${points.length - seen.length}`
        : "");
    parts.list.replaceChildren(
      ...best.map((each) => {
        const item = document.createElement("li");
        item.textContent = each.words;
        return item;
      }),
    );
    parts.svg.replaceChildren();
    if (!seen.length) return;
    const range = (key) => {
      const values = seen.map((each) => each[key]),
        low = Math.min(...values),
        high = Math.max(...values),
        rim = Math.max(0.06 * (high - low), 0.5);
      return [low - rim, high + rim];
    };
    const [xs, ys] = [range("x"), range("y")];
    const share = (at, [low, high], sign) => (sign > 0 ? at - low : high - at) / (high - low); // better is right and up
    const across = (x) => LEFT + (RIGHT - LEFT) * share(x, xs, sx);
    const up = (y) => BOTTOM - (BOTTOM - TOP) * share(y, ys, sy);
    for (const tick of ticks(...ys))
      parts.svg.append(
        made("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: up(tick), y2: up(tick) }),
        made("text", { x: LEFT - 8, y: up(tick) + 4, "text-anchor": "end" }, tick),
      );
    for (const tick of ticks(...xs))
      parts.svg.append(
        made("line", { class: "grid", x1: across(tick), x2: across(tick), y1: TOP, y2: BOTTOM }),
        made("text", { x: across(tick), y: BOTTOM + 18, "text-anchor": "middle" }, tick),
      );
    const steps = best
      .filter((each) => seen.includes(each))
      .flatMap((each, n, all) => [
        ...(n ? [`${across(all[n - 1].x).toFixed(1)},${up(each.y).toFixed(1)}`] : []),
        `${across(each.x).toFixed(1)},${up(each.y).toFixed(1)}`,
      ]);
    parts.svg.append(made("polyline", { class: "front", points: steps.join(" ") }));
    parts.svg.append(
      made("text", { x: (LEFT + RIGHT) / 2, y: 394, "text-anchor": "middle" }, `${names[0]}, %`),
      made("text", { transform: "translate(14 182) rotate(-90)", "text-anchor": "middle" }, `${names[1]}, %`),
    );
    const drawn = [...seen]
      .sort((a, b) => sx * (a.x - b.x) || sy * (a.y - b.y))
      .map((each) => {
        const leads = best.includes(each);
        const shape =
          each.kind === "run"
            ? made("rect", { x: across(each.x) - 5, y: up(each.y) - 5, width: 10, height: 10 })
            : made("circle", { cx: across(each.x), cy: up(each.y), r: 5 });
        shape.setAttribute("class", `point ${each.kind}${leads ? " leads" : ""}`);
        shape.setAttribute("role", "img");
        shape.setAttribute("aria-label", each.words + (leads ? "; on the front" : ""));
        shape.setAttribute("tabindex", "-1");
        const say = () => {
          parts.said.textContent = each.words;
          parts.svg.querySelector(".pointed")?.classList.remove("pointed");
          shape.classList.add("pointed");
        };
        shape.addEventListener("pointerenter", say);
        shape.addEventListener("focus", say);
        shape.addEventListener("click", each.open);
        return shape;
      });
    drawn[0].setAttribute("tabindex", "0");
    drawn.forEach((shape, at) =>
      shape.addEventListener("keydown", (event) => {
        const to = {
          ArrowRight: at + 1,
          ArrowUp: at + 1,
          ArrowLeft: at - 1,
          ArrowDown: at - 1,
          Home: 0,
          End: drawn.length - 1,
        }[event.key];
        if (event.key === "Enter") {
          event.preventDefault();
          shape.dispatchEvent(new MouseEvent("click"));
        }
        if (to === undefined || !drawn[to]) return;
        event.preventDefault();
        shape.setAttribute("tabindex", "-1");
        drawn[to].setAttribute("tabindex", "0");
        drawn[to].focus();
      }),
    );
    parts.svg.append(...drawn);
  }

  return { draw, front, lowerFence };
})();
