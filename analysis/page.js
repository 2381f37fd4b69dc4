"use strict";
/* Shows the content of a report: sections with figures, controls that choose among them, and the
   tables behind them. Text is only ever set as text. */
(() => {
  const drawn = new Map();    // plot id -> {box, figure}
  const chosen = new Map();   // section id -> {control: option}
  const shapes = new Map();   // section id -> what it is made of
  const SHOWN_ROWS = 300;

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) {
      if (key === "class") node.className = value;
      else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value);
    }
    node.append(...children);
    return node;
  };

  // --- light and dark -------------------------------------------------------------------------

  const dark = matchMedia("(prefers-color-scheme: dark)");
  let asked = null;
  const setTheme = () => {
    document.documentElement.dataset.theme = asked || (dark.matches ? "dark" : "light");
    for (const plot of drawn.values()) draw(plot);
  };
  const themed = (figure) => {
    const css = getComputedStyle(document.documentElement);
    const colour = (name) => css.getPropertyValue(name).trim();
    const layout = { ...figure.layout, font: { ...figure.layout.font, color: colour("--text") } };
    for (const key of Object.keys(layout)) {
      if (/^[xy]axis/.test(key)) {
        layout[key] = { ...layout[key], gridcolor: colour("--grid"), linecolor: colour("--line") };
      }
    }
    layout.hoverlabel = {
      ...layout.hoverlabel, bgcolor: colour("--ground"), bordercolor: colour("--line"),
      font: { color: colour("--text") },
    };
    layout.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") };
    layout.uirevision = "kept";
    return layout;
  };

  // --- figures --------------------------------------------------------------------------------

  // A long legend would squeeze a figure: it goes below, on a phone one entry per line.
  const fitted = (layout, box) => {
    const entries = Number(box.dataset.entries);
    const width = box.clientWidth;
    const narrow = width < 560;
    if (entries <= (narrow ? 2 : 6)) return layout;
    const columns = narrow ? 1 : Math.max(1, Math.floor(width / 260));
    const below = 20 * Math.ceil(entries / columns) + 16;
    const legend = {
      ...layout.legend, orientation: "h", x: 0, xref: "container", xanchor: "left", y: 0,
      yref: "container", yanchor: "bottom", entrywidthmode: "pixels", entrywidth: narrow ? width - 80 : 210,
    };
    return {
      ...layout, legend, height: layout.height + below,
      margin: { ...layout.margin, b: below + 46 },
      xaxis: { ...layout.xaxis, automargin: false },
    };
  };

  const draw = ({ box, figure }) => {
    if (!box.isConnected || box.closest("[hidden]")) return Promise.resolve();
    const layout = fitted(themed(figure), box);
    const config = {
      responsive: true, displaylogo: false, scrollZoom: false,
      displayModeBar: figure.layout.dragmode === "zoom" && box.clientWidth >= 560,
      modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
    };
    return Plotly.react(box, figure.data, layout, config);
  };

  const entriesOf = (figure) =>
    figure.data.filter((trace) => trace.showlegend !== false && trace.name).length;

  // --- tables ---------------------------------------------------------------------------------

  const written = (value) => {
    if (value === null) return "";
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  };
  const csvOf = (table) => {
    const cell = (value) => {
      const text = value === null ? "" : String(value);
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const lines = [table.columns, ...table.rows];
    return lines.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  };
  const download = (name, text, type) => {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const tableNode = (table, shown) => {
    const places = shown ? shown.map((name) => table.columns.indexOf(name)) : table.columns.map((_, i) => i);
    const isText = places.map((i) => table.rows.some((row) => typeof row[i] === "string"));
    const isLong = places.map((i) => table.rows.some((row) => String(row[i]).length > 40));
    const kind = (j) => (isText[j] ? (isLong[j] ? "text wide" : "text") : "");
    const head = make("tr", {}, ...places.map((i, j) =>
      make("th", { class: kind(j) }, (table.heads ? table.heads[i] : table.columns[i]).replaceAll("_", " "))));
    const body = table.rows.slice(0, SHOWN_ROWS).map((row) =>
      make("tr", {}, ...places.map((i, j) => make("td", { class: kind(j) }, written(row[i])))));
    return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
  };
  const csvButton = (table) => make("button", {
    type: "button", class: "csv", "data-file": `${table.name}.csv`,
    onclick: () => download(`${table.name}.csv`, csvOf(table), "text/csv"),
  }, "Download CSV");
  const tableDetails = (table) => {
    const more = table.rows.length > SHOWN_ROWS ? `, of which ${SHOWN_ROWS} are shown` : "";
    const details = make("details", {}, make("summary", {}, `${table.title} (${table.rows.length} rows${more})`), csvButton(table));
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 2) details.append(tableNode(table));
    });
    return details;
  };

  // --- sections -------------------------------------------------------------------------------

  const fits = (plot, choice) =>
    Object.entries(plot.when || {}).every(([control, option]) => !(control in choice) || choice[control] === option);

  const controlsNode = (section, update) => {
    const choice = chosen.get(section.id);
    return make("div", { class: "controls" }, ...section.controls.map((control) => {
      const long = control.options.length > 4 || control.options.join("").length > 48;
      if (long) {
        const select = make("select", { "aria-label": control.name, onchange: (event) => {
          choice[control.name] = event.target.value; update();
        } }, ...control.options.map((option) => make("option", { value: option }, option)));
        select.value = choice[control.name];
        return make("fieldset", {}, make("legend", {}, control.name), select);
      }
      const buttons = control.options.map((option) => make("button", {
        type: "button", "aria-pressed": String(choice[control.name] === option),
        onclick: (event) => {
          choice[control.name] = option;
          for (const other of buttons) other.setAttribute("aria-pressed", String(other === event.target));
          update();
        },
      }, option));
      return make("fieldset", {}, make("legend", {}, control.name), ...buttons);
    }));
  };

  const sectionNode = (section) => {
    const choice = chosen.get(section.id) || {};
    for (const control of section.controls || []) {
      if (!control.options.includes(choice[control.name])) choice[control.name] = control.options[0];
    }
    chosen.set(section.id, choice);
    const node = make("section", { id: section.id }, make("h2", {}, section.title));
    if (section.answer) node.append(make("ul", { class: "answer" }, ...section.answer.map((line) => make("li", {}, line))));
    if (section.read) node.append(make("p", { class: "read" }, section.read));
    if (section.main) node.append(tableNode(section.main), csvButton(section.main));
    if (section.notes && section.notes.length) {
      node.append(make("ul", { class: "notes" }, ...section.notes.map((line) => make("li", {}, line))));
    }
    const plots = section.plots || [];
    const update = () => {
      plots.forEach((plot, i) => {
        const holder = document.getElementById(`${section.id}-${i}`).parentNode;
        holder.hidden = !fits(plot, choice);
        if (!holder.hidden) draw(drawn.get(`${section.id}-${i}`));
      });
    };
    if (section.controls && section.controls.length) node.append(controlsNode(section, update));
    const grid = make("div", { class: plots.some((plot) => plot.small) ? "grid small" : "grid" });
    plots.forEach((plot, i) => {
      const box = make("div", { class: "drawing", id: `${section.id}-${i}`, "data-entries": entriesOf(plot.figure) });
      const holder = make("div", { class: "plot" }, ...(plot.title ? [make("h3", {}, plot.title)] : []), box);
      holder.hidden = !fits(plot, choice);
      grid.append(holder);
      drawn.set(box.id, { box, figure: plot.figure });
    });
    if (plots.length) node.append(grid);
    for (const table of section.tables || []) node.append(tableDetails(table));
    for (const text of section.texts || []) {
      node.append(make("details", {}, make("summary", {}, text.title),
        make("button", { type: "button", onclick: () => download(text.name, text.text, "text/plain") }, `Download ${text.name}`),
        make("pre", { tabindex: "0" }, text.text)));
    }
    return node;
  };

  const shapeOf = (section) => JSON.stringify([section.controls, (section.plots || []).map((p) => [p.title, p.when])]);

  const show = async (content) => {
    document.title = content.title;
    document.getElementById("title").textContent = content.title;
    document.getElementById("footer").textContent = content.made;
    const main = document.getElementById("main");
    document.getElementById("waiting")?.remove();
    const ids = content.sections.map((section) => section.id);
    for (const old of [...main.children]) if (!ids.includes(old.id)) old.remove();
    for (const section of content.sections) {
      const old = document.getElementById(section.id);
      const open = old ? [...old.querySelectorAll("details")].map((d) => d.open) : [];
      if (old && section.plots?.length && shapes.get(section.id) === shapeOf(section)) {
        section.plots.forEach((plot, i) => { drawn.get(`${section.id}-${i}`).figure = plot.figure; });
        old.querySelectorAll(":scope > details").forEach((d) => d.remove());
        for (const table of section.tables || []) old.append(tableDetails(table));
      } else {
        const node = sectionNode(section);
        if (old) old.replaceWith(node); else main.append(node);
        shapes.set(section.id, shapeOf(section));
      }
      [...document.getElementById(section.id).querySelectorAll("details")].forEach((d, i) => { d.open = open[i] || false; });
    }
    const nav = document.getElementById("contents");
    nav.replaceChildren(...content.sections.map((s) => make("a", { href: `#${s.id}` }, s.title)));
    for (const [id, plot] of drawn) {
      if (!plot.box.isConnected) { Plotly.purge(plot.box); drawn.delete(id); continue; }
      await draw(plot);
      await new Promise((resolve) => setTimeout(resolve));   // the page stays responsive
    }
    document.documentElement.dataset.ready = String(Number(document.documentElement.dataset.ready || 0) + 1);
  };

  // --- start ----------------------------------------------------------------------------------

  const unpacked = async (id) => {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  const live = async (address) => {
    const status = make("span", { class: "live", id: "live" }, "live");
    document.querySelector("header").append(status);
    let seen = "";
    for (;;) {
      let wait = 2000;
      try {
        const answer = await fetch(address, { headers: seen ? { "If-None-Match": seen } : {}, cache: "no-store" });
        if (answer.status === 200) {
          seen = answer.headers.get("ETag") || "";
          const content = await answer.json();
          if (content.sections) await show(content);
          else document.getElementById("waiting")?.replaceChildren(content.waiting);
          status.textContent = content.live;
          if (content.finished) return;
        }
      } catch (error) {
        status.textContent = "not connected: gifair watch has ended";
        wait = 5000;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  };

  const start = async () => {
    document.head.append(make("script", {}, await unpacked("library")));
    setTheme();
    dark.addEventListener("change", setTheme);
    document.getElementById("theme").addEventListener("click", () => {
      asked = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      setTheme();
    });
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      for (const plot of drawn.values()) draw(plot);
    });
    const content = JSON.parse(await unpacked("content"));
    if (content.address) await live(content.address);
    else await show(content);
  };
  start().catch((error) => {
    console.error(error);
    document.getElementById("main").prepend(`The report could not be drawn: ${error}`);
  });
})();
