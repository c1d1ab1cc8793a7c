// Draws a query and what each run finds for it. Text from data goes into the page as text only.
"use strict";

hbench.strips = (() => {
  const CELL = 96,
    SIDE = 6,
    LONG = 22,
    TAIL = 14;
  const copy = (id) => document.getElementById(id).content.firstElementChild.cloneNode(true);

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // The picture at a place among all, on its sheet; its class, or else its id, where there is none.
  function picture(item) {
    const words = item.name ?? item.id;
    if (item.place < 0) return element("span", words.length > LONG ? "nopicture long" : "nopicture", words);
    const svg = copy("blank-picture");
    const inSheet = item.place % (SIDE * SIDE);
    const x = CELL * (inSheet % SIDE),
      y = CELL * Math.floor(inSheet / SIDE);
    svg.setAttribute("viewBox", `${x + 1} ${y + 1} ${CELL - 2} ${CELL - 2}`);
    svg.setAttribute("aria-label", item.id);
    svg.firstElementChild.setAttribute("href", `pictures/${Math.floor(item.place / (SIDE * SIDE))}.webp`);
    return svg;
  }

  function framed(item) {
    const frame = element("div", "frame");
    frame.append(picture(item));
    return frame;
  }

  // The finest class; a mere number follows the name of the class above.
  const named = (path) => (/^\d+$/.test(path.at(-1)) ? path.slice(-2).join(" ") : path.at(-1));

  // A result, a button where it is itself a query. `result.late`: it comes after the list, as the first right one.
  // `about`: the page's index; `ask`: what makes an item the query.
  function tile(result, rank, about, ask) {
    const made = copy("blank-tile");
    const [holder, frame, level, title, caption] = [".result", ".frame", "span.level", ".name", ".caption"].map(
      (part) => made.querySelector(part),
    );
    const name = result.level ? about.levels[result.level - 1] : "unrelated";
    made.className = `tile level-${result.level}${result.late ? " late" : ""}`;
    delete made.dataset.level;
    delete made.dataset.item;
    for (const [key, value] of Object.entries(
      result.late ? { right: rank } : { level: result.level, item: result.item.id },
    ))
      made.dataset[key] = value;
    frame.replaceChildren(
      picture({ ...result.item, name: named(result.path) }),
      ...(result.copy ? [frame.querySelector(".copy")] : []),
    );
    title.textContent = named(result.path);
    const id = made.querySelector(".caption.item");
    if (result.item.place < 0)
      id.textContent = result.item.id.length > TAIL ? `…${result.item.id.slice(1 - TAIL)}` : result.item.id;
    else id.remove();
    level.className = `level level-${result.level}`;
    level.firstElementChild.textContent = "●".repeat(result.level) + "○".repeat(about.levels.length - result.level);
    level.lastChild.textContent = ` ${name}`;
    const before = result.late ? "the right one is at rank " : "";
    caption.textContent = `${before}${rank.toLocaleString("en")} · ${result.score.toFixed(3)}`;
    holder.title = [...result.path, result.item.id].join(" › ");
    holder.type = "button";
    holder.disabled = !ask;
    if (ask) {
      holder.setAttribute(
        "aria-label",
        `${rank}: ${named(result.path)}, ${result.item.id}, ${name}, ${result.score.toFixed(3)}; make it the query`,
      );
      holder.addEventListener("click", ask);
    }
    return made;
  }

  function heading(query, about) {
    const made = element("header", "asked");
    const words = element("div");
    const paths = [query.path, ...query.more].map((path) => path.join(" › "));
    words.append(element("h2", "", paths.join("; ")), element("p", "caption", query.item.id));
    const frame = framed({ ...query.item, name: named(query.path) });
    if (about.images) {
      const link = element("a", "result");
      link.href = about.images + query.item.id.split("/").map(encodeURIComponent).join("/");
      link.title = `${query.item.id} in full size`;
      link.append(frame);
      made.append(link, words);
    } else made.append(frame, words);
    return made;
  }

  // One run's results; `value` is null where it is not kept.
  function row(run, number, results, value, about) {
    const made = element("section", "found");
    const title = element("h3");
    if (about.runs.length > 1) title.append(element("span", `swatch run-${number % 4}`));
    title.append(run.name);
    if (value !== null) {
      const small = element("small", "", ` ${about.by} ${(about.factor * value).toFixed(1)}`);
      small.dataset.value = value;
      title.append(small);
    }
    made.append(title);
    if (!results)
      made.append(element("p", "caption", "Its results are not kept: hbench evaluate --top-k 20, or --embeddings."));
    else {
      const list = element("ol", "grid-of-tiles");
      list.append(...results);
      made.append(list);
    }
    return made;
  }

  return { tile, heading, row, element, picture };
})();
