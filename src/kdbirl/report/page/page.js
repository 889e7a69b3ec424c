"use strict";
// Draws the charts of a page, and links them: a brush in one chart filters the others and the numbers.
// Everything comes as data from the JSON block "content"; user's text only ever becomes text, never markup.
(() => {
  const content = JSON.parse(document.getElementById("content").textContent);
  const charts = content.charts ?? {};
  const views = new Map();

  // Colours are variables of the style sheet, so that dark mode and print need no second drawing.
  const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";
  const LOOK = {
    background: null,
    font,
    view: { stroke: null },
    axis: {
      labelColor: "var(--soft)", titleColor: "var(--soft)", domainColor: "var(--soft)", tickColor: "var(--soft)",
      gridColor: "var(--line)", labelFontSize: 11.5, titleFontSize: 12, titleFontWeight: "normal", labelLimit: 190,
      grid: false,
    },
    text: { color: "var(--ink)", fontSize: 11.5 },
    legend: { labelColor: "var(--soft)", titleColor: "var(--soft)", labelFontSize: 11.5, titleFontSize: 12, titleFontWeight: "normal" },
  };
  // ast: expressions are interpreted, not compiled: the page's policy forbids code made from text
  const OPTIONS = { ast: true, renderer: "svg", actions: false, defaultStyle: false, tooltip: { disableDefaultStyle: true } };

  const number = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(4))) : "–");

  async function draw(id, changes = {}) {
    const place = document.getElementById(id);
    views.get(id)?.finalize();
    const { view } = await vegaEmbed(place, { ...charts[id].spec, ...changes, config: LOOK }, OPTIONS);
    views.set(id, view);
    // the place of a chart has a role and one sentence for all of it: a label on each mark helps nobody
    place.querySelector("svg").setAttribute("aria-hidden", "true");
    return view;
  }

  // ---- draws -------------------------------------------------------------------------------------------------------
  const names = content.draws?.names ?? [];
  const columns = (content.draws?.columns ?? []).map(unpacked);
  const shown = columns[0]?.length ?? 0;
  const limits = new Map(); // parameter -> [low, high]; an end that was not given is infinite
  let inside = null; // indices of the draws within all limits; null: no limit

  function unpacked({ low, step, packed }) {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    return Float64Array.from(new Uint16Array(bytes.buffer), (value) => low + step * value);
  }

  function chosen() {
    if (!limits.size) return null;
    const kept = [];
    for (let d = 0; d < shown; d++) {
      let ok = true;
      for (const [j, [low, high]] of limits) ok = ok && columns[j][d] >= low && columns[j][d] <= high;
      if (ok) kept.push(d);
    }
    return kept;
  }

  function summary(j) {
    const values = Float64Array.from(inside, (d) => columns[j][d]).sort();
    const n = values.length;
    if (!n) return { mean: NaN, sd: NaN, q05: NaN, q25: NaN, median: NaN, q75: NaN, q95: NaN };
    const mean = values.reduce((a, b) => a + b, 0) / n;
    const sd = Math.sqrt(values.reduce((a, b) => a + (b - mean) ** 2, 0) / n);
    const at = (p) => {
      const place = p * (n - 1), k = Math.floor(place);
      return values[k] + (place - k) * ((values[k + 1] ?? values[k]) - values[k]);
    };
    return { mean, sd, q05: at(0.05), q25: at(0.25), median: at(0.5), q75: at(0.75), q95: at(0.95) };
  }

  // ---- what follows a brush ----------------------------------------------------------------------------------------
  const follow = {
    marginal(chart, view) {
      const { low, width, bins } = chart;
      const counts = new Array(bins.length).fill(0);
      for (const d of inside ?? []) {
        const place = Math.floor((columns[chart.parameter][d] - low) / width);
        if (place >= 0 && place < counts.length) counts[place]++;
      }
      const total = Math.max(1, inside?.length ?? 0) * width;
      view.data("bins", bins.map((bin, i) => ({ ...bin, chosen: inside ? counts[i] / total : 0 })));
    },
    intervals(chart, view) {
      const rows = inside?.length ? chart.parameters.map((j) => ({ name: names[j], ...summary(j) })) : [];
      view.data("chosen", rows);
    },
    map(chart, view) {
      if (inside && !inside.length) return;
      const cells = chart.cells.map((cell) => {
        if (!inside) return cell;
        const { mean, sd } = summary(cell.parameter);
        return { ...cell, value: chart.shows === "sd" ? sd : mean };
      });
      view.data("cells", cells);
    },
    pair(chart, view) {
      view.data("points", points(chart));
    },
  };

  function points(chart) {
    const kept = new Set(inside ?? []);
    const rows = new Array(shown);
    const [x, y] = pair.map((j) => columns[j]);
    for (let d = 0; d < shown; d++) rows[d] = { across: x[d], up: y[d], in: !inside || kept.has(d) };
    return rows;
  }

  const linked = () => Object.entries(charts).filter(([id, chart]) => chart.role && views.has(id));
  let waiting = false;
  function update() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(async () => {
      waiting = false;
      inside = chosen();
      numbers();
      for (const [id, chart] of linked()) follow[chart.role](chart, views.get(id));
      await Promise.all(linked().map(([id]) => views.get(id).runAsync()));
      say();
    });
  }

  function numbers() {
    const found = new Map();
    for (const cell of document.querySelectorAll("output[data-parameter]")) {
      const j = Number(cell.dataset.parameter);
      if (inside && !found.has(j)) found.set(j, summary(j));
      cell.textContent = inside ? number(found.get(j)[cell.dataset.number]) : cell.dataset.all;
      cell.closest("tr").classList.toggle("narrowed", inside !== null);
    }
    for (const input of document.querySelectorAll("input[data-parameter]")) {
      const range = limits.get(Number(input.dataset.parameter));
      if (document.activeElement !== input) showEnd(input, range);
    }
  }

  const END = { low: 0, high: 1 };
  function showEnd(input, range) {
    const end = range?.[END[input.dataset.end]];
    input.value = Number.isFinite(end) ? String(Number(end.toPrecision(6))) : "";
    input.setCustomValidity("");
  }

  function words([low, high]) {
    if (!Number.isFinite(low)) return `at most ${number(high)}`;
    return Number.isFinite(high) ? `from ${number(low)} to ${number(high)}` : `at least ${number(low)}`;
  }

  function say() {
    const box = document.getElementById("status");
    if (!box) return;
    box.classList.toggle("on", inside !== null);
    const ranges = [...limits].map(([j, range]) => `${names[j]} ${words(range)}`);
    const share = inside ? `${inside.length} of ${shown} draws (${number((100 * inside.length) / shown)} %)` : "";
    box.querySelector("output").textContent = inside ? `Only ${share}: ${ranges.join("; ")}.` : "";
  }

  // ---- brushes -----------------------------------------------------------------------------------------------------
  let syncing = false;

  function limit(ranges, source) {
    for (const [j, range] of ranges) {
      if (range) limits.set(j, range);
      else limits.delete(j);
    }
    syncing = true; // what we set ourselves is no wish of the user's
    for (const [id, chart] of linked()) if (id !== source) show(chart, views.get(id));
    syncing = false;
    update();
  }

  function show(chart, view) {
    if (chart.role === "marginal") place(view, { x: limits.get(chart.parameter) });
    if (chart.role === "pair") {
      const [x, y] = pair.map((j) => limits.get(j));
      if (x || y) place(view, { x: x ?? view.scale("x").domain(), y: y ?? view.scale("y").domain() });
      else place(view, { x: undefined, y: undefined });
    }
  }

  function place(view, ranges) {
    for (const [axis, range] of Object.entries(ranges)) {
      const scale = view.scale(axis);
      const [low, high] = [...scale.domain()].sort((a, b) => a - b);
      const shown = range?.map((value) => scale(Math.min(high, Math.max(low, value)))); // no brush beyond the axis
      view.signal(`brush_${axis}`, shown ?? [0, 0]);
    }
    view.run();
  }

  function listen(id, parameters) {
    views.get(id).addSignalListener("brush", (_, value) => {
      if (syncing) return;
      const ranges = Object.entries(value).map(([field, range]) => [field === "up" ? parameters[1] : parameters[0], [...range].sort((a, b) => a - b)]);
      limit(ranges.length ? ranges : parameters.map((j) => [j, null]), id);
    });
  }

  // ---- pairs -------------------------------------------------------------------------------------------------------
  let pair = content.draws?.pair ?? [0, 0];

  async function drawPair(id) {
    const chart = charts[id], { spec } = chart;
    const [x, y] = pair.map((j, k) => ({ ...spec.encoding[k ? "y" : "x"], title: names[j] }));
    const middle = pair.map((j) => chart.central[j]);
    const description = `${names[pair[0]]} against ${names[pair[1]]}: ${shown} draws; the lines are the central 90 % of each.`;
    document.getElementById(id).setAttribute("aria-label", description);
    await draw(id, {
      encoding: { ...spec.encoding, x, y },
      datasets: { points: points(chart), "limits across": middle[0].map((a) => ({ a })), "limits up": middle[1].map((b) => ({ b })) },
    });
    listen(id, pair);
    show(chart, views.get(id));
    for (const [k, name] of ["pair-x", "pair-y"].entries()) document.getElementById(name).value = String(pair[k]);
  }

  // ---- everything together -----------------------------------------------------------------------------------------
  async function drawn(id) {
    const chart = charts[id];
    if (views.has(id)) return;
    if (chart.role === "pair") return drawPair(id);
    const view = await draw(id);
    if (chart.role === "marginal") listen(id, [chart.parameter]);
    if (chart.picks) {
      view.addEventListener("click", (_, item) => {
        const { i, j } = item?.datum ?? {};
        if (i !== undefined && i !== j) choosePair([j, i]);
      });
    }
    if (inside && chart.role) update();
  }

  function choosePair(wanted) {
    if (wanted[0] === wanted[1]) return;
    pair = wanted;
    return drawPair("pair");
  }

  function controls() {
    for (const input of document.querySelectorAll("input[data-parameter]")) {
      input.addEventListener("change", () => {
        const j = Number(input.dataset.parameter), k = END[input.dataset.end];
        const range = [...(limits.get(j) ?? [-Infinity, Infinity])]; // the other end stays exactly what it was
        range[k] = input.value === "" ? [-Infinity, Infinity][k] : Number(input.value);
        const wrong = range[0] > range[1];
        input.setCustomValidity(wrong ? `From ${number(range[0])} to ${number(range[1])} is no range.` : "");
        if (wrong) return input.reportValidity();
        limit([[j, range.some(Number.isFinite) ? range : null]]);
      });
    }
    const clear = () => {
      for (const input of document.querySelectorAll("input[data-parameter]")) showEnd(input, null);
      limit([...limits.keys()].map((j) => [j, null]));
    };
    document.getElementById("clear")?.addEventListener("click", clear);
    document.addEventListener("keydown", (event) => event.key === "Escape" && clear());
    const chosenPair = ["pair-x", "pair-y"].map((name) => document.getElementById(name));
    for (const [k, select] of chosenPair.entries()) {
      select?.addEventListener("change", () => {
        const wanted = chosenPair.map((one) => Number(one.value));
        // the other axis gives way: it takes what this one showed before
        if (wanted[0] === wanted[1]) wanted[1 - k] = pair[k];
        choosePair(wanted);
      });
    }
  }

  const places = [...document.querySelectorAll(".chart")];
  const hidden = (place) => place.closest("details:not([open])") !== null;

  async function drawAll() {
    for (const place of places) if (!hidden(place)) await drawn(place.id);
  }

  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", drawAll);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => (fold.open = true)));

  controls();
  drawAll().then(
    () => (document.documentElement.dataset.ready = "yes"),
    (problem) => console.error(problem),
  );
})();
