import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { logOut } from "./api";
import { Banner } from "./banner";
import { EnergyPage } from "./energy";
import { ExperimentPage, Experiments } from "./experiments";
import { JobPage } from "./job";
import { Jobs } from "./jobs";
import { logIn } from "./login";
import { NetworkPage } from "./network";
import { PlanPage } from "./plan";
import { dismiss, start, store, useStore } from "./store";
import { Yard } from "./yard";

const pages: [path: string, title: string][] = [
  ["yard", "Yard"],
  ["jobs", "Jobs"],
  ["plan", "Plan"],
  ["experiments", "Experiments"],
  ["energy", "Energy"],
  ["network", "Network"],
];

interface Place { page: string; id: string; query: URLSearchParams }

function place(): Place {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", id = ""] = path.split("/");
  let job = id;
  try {
    job = decodeURIComponent(id);
  } catch {
    // not an address of this page's making
  }
  return { page: page || "yard", id: job, query: new URLSearchParams(query) };
}

function usePlace(): Place {
  const [at, go] = useState(place);
  // Before the first paint, so that no change of the address goes unseen.
  useLayoutEffect(() => {
    const f = () => go(place());
    addEventListener("hashchange", f);
    return () => removeEventListener("hashchange", f);
  }, []);
  return at;
}

export function App() {
  const { live, plan } = useStore();
  const at = usePlace();
  const title = pages.find(([path]) => path === at.page)?.[1] ?? "Switchyard";
  const known = plan !== undefined;
  useEffect(() => {
    document.title = at.id ? `${at.id} – Switchyard` : `${title} – Switchyard`;
    // The heading of a new page has the focus, so that a screen reader reads on there.
    document.querySelector<HTMLElement>("main h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [at.page, at.id, known]);
  if (live === "out") return <Out />;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <Top page={at.page} />
      <main id="main" tabIndex={-1}>
        <Banner />
        {known ? <Page at={at} /> : <Unknown title={title} />}
      </main>
      <Notices />
    </>
  );
}

// Unknown stands for a page before the first answer, which may say that there is no node, or that nothing waits.
function Unknown({ title }: { title: string }) {
  const { live } = useStore();
  return <><div class="head"><h1 tabIndex={-1}>{title}</h1></div>{live === "loading" && <p class="empty">Loading…</p>}</>;
}

function Page({ at }: { at: Place }) {
  if (at.page === "jobs") return at.id ? <JobPage key={at.id} id={at.id} /> : <Jobs query={at.query} />;
  if (at.page === "plan") return <PlanPage />;
  if (at.page === "experiments") return at.id ? <ExperimentPage key={at.id} id={at.id} /> : <Experiments />;
  if (at.page === "network") return <NetworkPage />;
  if (at.page === "energy") return <EnergyPage />;
  return <Yard />;
}

function Top({ page }: { page: string }) {
  const { about, live } = useStore();
  const person = about?.person;
  return (
    <header class="top">
      <a class="mark" href="#/yard"><img src="icon.svg" alt="" width="20" height="20" />Switchyard</a>
      <nav aria-label="Pages">
        {pages.map(([path, title]) => (
          <a key={path} href={`#/${path}`} aria-current={page === path ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      <span class={`live ${live}`} role="status">
        <span aria-hidden="true" class="dot" />
        {live === "live" ? "live" : live === "loading" ? "loading" : "no connection"}
      </span>
      {person && (
        <span class="person">
          <span title={person.tenant ? `tenant ${person.tenant}` : undefined}>{person.name || "owner"}{person.name && <span class="dim"> {person.role}</span>}</span>
          <button class="quiet" onClick={() => void logOut().then(() => start())}>log out</button>
        </span>
      )}
    </header>
  );
}

function Out() {
  const { notices } = useStore();
  return (
    <main class="alone">
      <h1>Switchyard</h1>
      {notices.map((n) => <p key={n.id} class="bad" role="alert">{n.text}</p>)}
      <p>Nobody is logged in here. On the machine where Switchyard runs, type</p>
      <pre>switchyard open</pre>
      <p>and follow the link that it prints. It works once.</p>
      <p><button onClick={() => { store.live = "loading"; void logIn().then(start); }}>Try again</button></p>
    </main>
  );
}

function Notices() {
  const { notices } = useStore();
  return (
    <div class="notices" aria-live="polite">
      {notices.map((n) => (
        <div key={n.id} class={n.bad ? "bad" : ""}>
          {n.text}
          <button class="quiet" aria-label="dismiss" onClick={() => dismiss(n.id)}>×</button>
        </div>
      ))}
    </div>
  );
}
