// The menu of small screens, and the search: over an index that is loaded when the field is used first.
const $ = (id) => document.getElementById(id);
const [menu, nav, query, found] = ["menu", "nav", "query", "found"].map($);
const root = $("root").href.replace(/[^/]*$/, "");
const most = 20;

menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", String(nav.classList.toggle("open")));
});
nav.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });

let loading;
const load = () =>
  (loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = $("index").href;
    script.onload = () => done(window.sections.map(({ p: page, h: heading, a: at, t: text }) => ({
      page, heading, at, text, title: `${page} ${heading}`.toLowerCase(), words: text.toLowerCase(),
    })));
    script.onerror = failed;
    document.head.append(script);
  }));

// score is 0 if a word is missing; headings count more than text, and beginnings of words more than their middle.
const score = (section, words) => {
  let sum = 0;
  for (const word of words) {
    const begins = (text) => text.startsWith(word) || text.includes(" " + word) || text.includes("-" + word);
    const one = (begins(section.title) ? 30 : section.title.includes(word) ? 10 : 0)
      + (begins(section.words) ? 4 : section.words.includes(word) ? 1 : 0);
    if (!one) return 0;
    sum += one + Math.min(5, section.words.split(word).length - 1);
  }
  return section.at.startsWith("docs/adr/") ? sum / 2 : sum; // what is comes before why it is so
};

const around = (text, word) => {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 40);
  return (at ? "… " : "") + text.slice(at, at + 140).replace(/\s+/g, " ");
};

const show = async () => {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  found.hidden = words.length === 0;
  if (found.hidden) return;
  const best = (await load()).map((section) => [score(section, words), section]).filter(([points]) => points > 0)
    .sort(([a], [b]) => b - a).slice(0, most);
  found.replaceChildren(...best.map(([, section]) => {
    const item = document.createElement("li");
    const link = item.appendChild(document.createElement("a"));
    link.href = root + section.at;
    link.append(section.heading);
    if (section.page !== section.heading) link.appendChild(document.createElement("span")).textContent = section.page;
    link.appendChild(document.createElement("small")).textContent = around(section.text, words[0]);
    return item;
  }));
  if (best.length === 0) found.appendChild(document.createElement("li")).textContent = "Nothing has all of these words.";
};

query.addEventListener("input", show);
query.addEventListener("focus", () => { load(); show(); });
document.addEventListener("click", (event) => { if (!event.target.closest("search")) found.hidden = true; });
document.addEventListener("keydown", (event) => {
  const links = [...found.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "/" && document.activeElement !== query) query.focus();
  else if (event.key === "Escape") { found.hidden = true; query.blur(); }
  else if (!found.hidden && event.key === "ArrowDown") links[Math.min(at + 1, links.length - 1)]?.focus();
  else if (!found.hidden && event.key === "ArrowUp") (links[at - 1] ?? query).focus();
  else if (!found.hidden && event.key === "Enter" && document.activeElement === query) links[0]?.click();
  else return;
  event.preventDefault();
});
