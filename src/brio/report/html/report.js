"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const one = (selector, root = document) => root.querySelector(selector);

  // ---- selection of methods, the same for all charts
  const chips = all("[data-chip]");
  const shown = new Set(chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.chip));
  function updateCharts() {
    chips.forEach((c) => c.setAttribute("aria-pressed", String(shown.has(c.dataset.chip))));
    all("[data-arm]").forEach((mark) => { mark.hidden = !shown.has(mark.dataset.arm); });
    const every = new Set(chips.map((c) => c.dataset.chip)).size === shown.size;
    all("[data-chip-all]").forEach((c) => { c.textContent = every ? "none" : "all"; });
  }
  document.addEventListener("click", (event) => {
    const chip = event.target.closest("[data-chip], [data-chip-all]");
    if (!chip) return;
    const key = chip.dataset.chip;
    if (key === undefined) {
      const every = chip.textContent === "none";
      shown.clear();
      if (!every) chips.forEach((c) => shown.add(c.dataset.chip));
    } else if (!shown.delete(key)) shown.add(key);
    updateCharts();
  });

  // ---- the paragraph for a paper; the older command needs neither a network nor a permission
  const copy = document.getElementById("copy-paragraph");
  if (copy) copy.hidden = false;
  copy?.addEventListener("click", () => {
    getSelection().selectAllChildren(document.getElementById("paragraph"));
    copy.textContent = document.execCommand("copy") ? "copied" : "selected: press Ctrl-C";
  });

  // ---- order of the sites
  const order = document.getElementById("forest-order");
  order?.addEventListener("change", () => {
    const body = document.getElementById("forest").tBodies[1];
    const auc = (row) => Number(one(".lane:not([hidden])", row)?.dataset.auc || -1);
    const by = {
      name: (a, b) => a.dataset.name.localeCompare(b.dataset.name, "en", { numeric: true }),
      n: (a, b) => b.dataset.n - a.dataset.n,
      auc: (a, b) => auc(b) - auc(a),
    }[order.value];
    body.append(...[...body.rows].sort(by));
  });

  // ---- tooltip of what is under the pointer
  const tip = document.getElementById("tip");
  const place = (x, y) => {
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px`;
    tip.style.top = `${y + box.height + 26 > innerHeight ? y - box.height - 10 : y + 16}px`;
  };
  const showTip = (event) => {
    const under = event.target.closest?.("[data-tip]");
    tip.hidden = !under;
    if (!under) return;
    const around = under.parentElement.closest("[data-tip]");
    tip.textContent = [around, under].filter(Boolean).map((e) => e.dataset.tip).join("\n");
    place(event.clientX, event.clientY);
  };
  document.addEventListener("pointermove", showTip);
  document.addEventListener("pointerdown", showTip);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // ---- contents that follow: the section in view is marked, and its link stays in sight
  const links = new Map(all("nav a").map((a) => [a.hash.slice(1), a]));
  const list = one("nav ul");
  const marked = all("main > section[id]");
  let current = "";
  const follow = () => {
    const top = (section) => section.getBoundingClientRect().top;
    const reached = (line) => marked.findLast((section) => top(section) <= line) ?? marked[0];
    const atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
    // at the end of the page sections below the line cannot come up to it: the one that was asked for counts
    const wanted = atEnd && marked.find((section) => `#${section.id}` === location.hash && top(section) >= 0);
    const id = (wanted || reached(innerHeight * 0.25)).id;
    if (id === current) return;
    current = id;
    links.forEach((a) => a.removeAttribute("aria-current"));
    const link = links.get(id);
    if (!link) return;
    link.setAttribute("aria-current", "true");
    list.scrollLeft = link.offsetLeft - (list.clientWidth - link.offsetWidth) / 2;
  };
  let waiting = false;
  const followSoon = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; follow(); });
  };
  ["scroll", "resize", "hashchange"].forEach((name) => addEventListener(name, followSoon, { passive: true }));
  document.addEventListener("toggle", followSoon, true);
  follow();

  // ---- folded sections: a link opens its section, one button opens all, paper has all
  const parts = all("details.part");
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const part = target && one("details.part", target);
    if (!part) return;
    part.open = true;
    target.scrollIntoView(); // before it was open, the page may have been too short to bring it up
  };
  addEventListener("hashchange", openTarget);
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) openTarget(); // no hashchange follows
  });
  openTarget();
  const everything = document.getElementById("open-all");
  everything.hidden = false;
  const updateButton = () => { everything.textContent = parts.every((d) => d.open) ? "fold all" : "open all"; };
  everything.addEventListener("click", () => {
    const open = everything.textContent === "open all";
    parts.forEach((d) => { d.open = open; });
  });
  parts.forEach((d) => d.addEventListener("toggle", updateButton));
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details.printed").filter((d) => !d.open);
    folded.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => { folded.forEach((d) => { d.open = false; }); folded = []; });

  // ---- on narrow screens the rows of tables are cards, with a label above every value
  const labelCells = (table) => all("tbody td, tfoot td", table).forEach((cell) => {
    cell.dataset.label ??= table.tHead.rows[0].cells[cell.cellIndex].textContent.trim();
  });
  all(".cards table").forEach(labelCells);

  // ---- boxes wider than the screen say so
  const hint = (box) => {
    const more = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("more", more);
    let text = box.nextElementSibling;
    if (!text?.classList.contains("hint")) {
      if (!more) return;
      text = Object.assign(document.createElement("p"), { className: "hint", textContent: "more columns: scroll sideways →" });
      box.after(text);
    }
    text.hidden = !more;
  };
  const sizes = new ResizeObserver((entries) => entries.forEach((e) => hint(e.target)));
  all(".scroll").forEach((box) => sizes.observe(box));

  // ---- qualification: matrices of site pairs, one class below and one above the diagonal
  const data = document.getElementById("q-data");
  if (data) {
    const { arms, classes, unit } = JSON.parse(data.textContent);
    const SVG = "http://www.w3.org/2000/svg";
    const armChoice = document.getElementById("q-arm");
    const foldChoice = document.getElementById("q-fold");
    const maps = document.getElementById("q-maps");
    const make = (name, attributes = {}, text = "") => {
      const element = document.createElementNS(SVG, name);
      Object.entries(attributes).forEach(([k, v]) => element.setAttribute(k, v));
      if (text !== "") element.textContent = text;
      return element;
    };
    const plain = (name, text = "") => Object.assign(document.createElement(name), { textContent: text });
    const short = (name) => (name.length > 11 ? `${name.slice(0, 10)}…` : name);
    // one hue from weak to strong, so that the order survives print in grey; the style sheet has its two ends
    const shade = (share) => `--t: ${(100 * Math.max(0, Math.min(1, share))).toFixed(1)}%`;
    const spread = (values) => [Math.min(...values), Math.max(...values)];
    const fixed = (v) => (v === null || v === undefined ? "–" : v.toFixed(2));

    function figure({ title, note, quantity, rows, columns, cell, values, square }) {
      const [low, high] = spread(values); // of what is drawn: a scale from 0 would show nothing of near-equal weights
      const label = 62, size = 200, top = square ? 4 : 16;
      const step = size / (square ? rows.length : Math.max(rows.length, 1));
      const wide = size / columns.length;
      const svg = make("svg", { viewBox: `0 0 ${label + size + 4} ${top + size + 4}`, role: "img", "aria-label": title });
      rows.forEach((name, i) => {
        svg.append(make("text", { x: label - 4, y: top + (i + 0.5) * step + 3, "text-anchor": "end", "font-size": Math.min(9, step + 1) }, short(name)));
        columns.forEach((_, j) => {
          const content = cell(i, j);
          if (!content) return;
          const rect = make("rect", { x: label + j * wide, y: top + i * step, width: wide - 0.6, height: step - 0.6, class: content.value === null ? "absent" : "heat" });
          if (content.value !== null) rect.setAttribute("style", shade(high > low ? (content.value - low) / (high - low) : 0.5));
          if (content.value === null) // in no seed are both sites source sites
            svg.append(make("path", { d: `M${label + (j + 0.3) * wide} ${top + (i + 0.7) * step}L${label + (j + 0.7) * wide} ${top + (i + 0.3) * step}`, class: "none" }));
          rect.dataset.tip = content.tip;
          svg.prepend(rect);
        });
      });
      if (!square) columns.forEach((name, j) => svg.append(make("text", { x: label + (j + 0.5) * wide, y: 11, "text-anchor": "middle" }, name)));
      const key = make("svg", { viewBox: `0 0 ${label + size + 4} 34`, class: "key", role: "img", "aria-label": `${quantity}: light ${fixed(low)}, dark ${fixed(high)}` });
      for (let k = 0; k < 40; k += 1) key.append(make("rect", { x: label + k * 5, y: 4, width: 5.3, height: 9, class: "heat", style: shade(k / 39) }));
      const same = fixed(low) === fixed(high);
      [[0, low, "start"], [0.5, (low + high) / 2, "middle"], [1, high, "end"]].filter((_, k) => !same || k === 1)
        .forEach(([at, value, anchor]) => key.append(make("text", { x: label + at * size, y: 24, "text-anchor": anchor }, same ? `${fixed(value)} everywhere` : fixed(value))));
      key.append(make("text", { x: label - 4, y: 12, "text-anchor": "end" }, quantity));
      const box = plain("figure");
      const caption = plain("figcaption");
      caption.append(plain("b", title), " ", plain("span", note));
      box.append(caption, svg, key);
      return box;
    }

    function table(fold, pairs, J) {
      const box = plain("table");
      box.className = "sortable";
      const head = box.createTHead().insertRow();
      const names = ["pair", "class", "strength", ...Array.from({ length: J }, (_, j) => `factor ${j + 1}`)];
      names.forEach((name, k) => {
        const th = plain("th");
        const button = plain("button", name);
        button.type = "button";
        button.dataset.sort = k < 2 ? "text" : "number";
        if (k > 1) th.className = "num";
        th.scope = "col";
        th.append(button);
        head.append(th);
      });
      const body = box.createTBody();
      pairs.forEach(({ i, j, weights }) => weights?.forEach((values, y) => {
        const row = body.insertRow();
        row.insertCell().textContent = `${fold.sites[i]} – ${fold.sites[j]}`;
        row.insertCell().textContent = classes[y];
        values.forEach((v) => { const c = row.insertCell(); c.textContent = fixed(v); c.className = "num"; });
      }));
      return box;
    }

    function drawFold() {
      const arm = arms[armChoice ? armChoice.value : Object.keys(arms)[0]];
      const fold = arm[foldChoice.value];
      const { sites, pi } = fold;
      const J = pi.length;
      const pairs = [];
      const byPair = new Map();
      for (let i = 0, k = 0; i < sites.length; i += 1)
        for (let j = i + 1; j < sites.length; j += 1, k += 1) {
          pairs.push({ i, j, weights: fold.pairs[k] });
          byPair.set(`${i},${j}`, fold.pairs[k]);
        }
      const known = pairs.filter((p) => p.weights).flatMap((p) => p.weights);
      const weightsOfAll = known.flatMap((v) => v.slice(1)); // one scale for all factors, so that they can be compared
      const square = (title, note, quantity, k, values) => figure({ title, note, quantity, values, rows: sites, columns: sites, square: true, cell: (r, c) => {
        if (r === c) return null;
        const y = r > c ? 0 : 1; // below the diagonal the first class
        const weights = byPair.get(`${Math.min(r, c)},${Math.max(r, c)}`);
        const value = weights ? weights[y][k] : null;
        return { value, tip: `${sites[Math.min(r, c)]} – ${sites[Math.max(r, c)]}, ${classes[y]}\n${title}: ${value === null ? "not both source sites under any seed" : fixed(value)}` };
      } });
      const drawn = pi.map((p, j) => square(`Factor ${j + 1}`, `relevance ${fixed(p)}; ${classes[0]} below, ${classes[1]} above the diagonal`, "weight", j + 1, weightsOfAll));
      drawn.push(square("Strength g", `overall alignment of a pair; ${classes[0]} below, ${classes[1]} above`, "strength", 0, known.map((v) => v[0])));
      if (fold.support) {
        const values = fold.support.filter(Boolean).flat(2);
        const columns = classes.flatMap((_, y) => pi.map((_p, j) => `${j + 1}${y ? "′" : ""}`));
        drawn.push(figure({ title: "Support q", note: `of each factor under re-estimation; ${classes[0]} first, then ${classes[1]} (′)`, quantity: "support", values, rows: sites, columns, square: false, cell: (r, c) => {
          const support = fold.support[r];
          const value = support ? support[Math.floor(c / J)][c % J] : null;
          return { value, tip: `${sites[r]}, ${classes[Math.floor(c / J)]}\nsupport of factor ${(c % J) + 1}: ${fixed(value)}` };
        } }));
      }
      document.getElementById("q-title").textContent = `Test ${unit} ${foldChoice.value}: ${fold.seeds === 1 ? "one seed" : `mean over ${fold.seeds} seeds`}`;
      maps.replaceChildren(...drawn);
      const values = table(fold, pairs, J);
      labelCells(values);
      document.getElementById("q-table").replaceChildren(values);
    }
    function fillFolds() {
      const arm = arms[armChoice ? armChoice.value : Object.keys(arms)[0]];
      foldChoice.replaceChildren(...Object.keys(arm).map((name) => plain("option", name)));
      drawFold();
    }
    armChoice?.addEventListener("change", fillFolds);
    foldChoice.addEventListener("change", drawFold);
    fillFolds();
  }

  // ---- interactive brain: a compressed page of its own, decompressed as soon as its section is open
  const frame = one("iframe.brain");
  if (frame) {
    const decompress = async () => {
      const bytes = Uint8Array.from(atob(one("#brain-page").textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      frame.srcdoc = await new Response(stream).text();
    };
    const part = frame.closest("details.part");
    const replaceFrame = (reason) => frame.replaceWith(Object.assign(document.createElement("p"), { className: "note", textContent: reason }));
    const load = () => {
      if (!part.open) return;
      part.removeEventListener("toggle", load);
      if (typeof DecompressionStream === "undefined") replaceFrame("The interactive brain needs a browser from 2023 or later.");
      else decompress().catch(() => replaceFrame("The interactive brain cannot be shown, because this file is damaged; write the report again."));
    };
    part.addEventListener("toggle", load);
    load();
  }
})();
