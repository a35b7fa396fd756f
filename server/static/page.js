// What the page does by itself. Everything here can also be read, started and cancelled without it.
"use strict";
(function () {
  const $ = (selector, under) => Array.from((under || document).querySelectorAll(selector));

  // --- regions that the server sends again when they have changed -------------------------------------
  const live = document.querySelector("[data-live]");
  const shown = {};
  let etag = "", wait = 1000, failures = 0;

  // What stays the same stays where it is: a button must not be exchanged between the press and the release of a
  // finger on it. What has another name is another thing, and never becomes it under the finger either.
  function nameOf(node) {
    if (node.nodeType !== Node.ELEMENT_NODE) return node.nodeName;
    return [node.nodeName, node.id, node.getAttribute("class"), node.getAttribute("action")].join(" ");
  }

  function become(now, next) {
    if (now.nodeType !== Node.ELEMENT_NODE) {
      if (now.nodeValue !== next.nodeValue) now.nodeValue = next.nodeValue;
      return;
    }
    for (const { name } of Array.from(now.attributes)) {
      if (!next.hasAttribute(name) && !(name === "open" && now.nodeName === "DETAILS")) now.removeAttribute(name);
    }
    for (const { name, value } of Array.from(next.attributes)) {
      if (now.getAttribute(name) !== value) now.setAttribute(name, value);
    }
    becomeWithin(now, next);
  }

  function becomeWithin(parent, next) {
    let old = parent.firstChild;
    for (const node of Array.from(next.childNodes)) {
      let same = old;
      if (node.nodeType === Node.ELEMENT_NODE) {
        while (same && nameOf(same) !== nameOf(node)) same = same.nextSibling;
      } else if (same && nameOf(same) !== nameOf(node)) {
        same = null;
      }
      if (!same) {
        parent.insertBefore(node, old);
        continue;
      }
      while (old !== same) {
        const gone = old;
        old = old.nextSibling;
        gone.remove();
      }
      become(same, node);
      old = same.nextSibling;
    }
    while (old) {
      const gone = old;
      old = old.nextSibling;
      gone.remove();
    }
  }

  function put(region, html) {
    if (shown[region.id] === html) return;
    const first = !(region.id in shown);
    shown[region.id] = html;
    if (first && region.innerHTML === html) return;
    // a half-chosen comparison, an open part and the keyboard's place outlive the change
    const ticked = new Set($("input:checked", region).map((box) => box.id));
    const open = new Set($("details[open]", region).map((part) => part.id));
    const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
    const scroll = $(".scroll", region).map((box) => box.scrollLeft);
    const next = document.createElement("template");
    next.innerHTML = html;
    becomeWithin(region, next.content);
    $("input[type=checkbox]", region).forEach((box) => { if (ticked.has(box.id)) box.checked = true; });
    $("details", region).forEach((part) => { if (open.has(part.id)) part.open = true; });
    $(".scroll", region).forEach((box, n) => { box.scrollLeft = scroll[n] || 0; });
    if (focused) {
      const again = document.getElementById(focused);
      (again || document.getElementById("main")).focus({ preventScroll: true });
    }
    localTimes(region);
  }

  async function look() {
    let pause = document.hidden ? 5000 : wait;
    try {
      const headers = { Accept: "application/json" };
      if (etag) headers["If-None-Match"] = etag;
      const answer = await fetch(live.dataset.live, { headers, cache: "no-store", redirect: "manual" });
      if (answer.status === 200) {
        etag = answer.headers.get("ETag") || "";
        const told = await answer.json();
        for (const [name, html] of Object.entries(told.regions)) {
          const region = document.getElementById("region-" + name);
          if (region) put(region, html);
        }
        if (told.title) document.title = told.title + document.title.slice(document.title.indexOf(" · "));
        await readLog();
        if (told.over && "reloadAtEnd" in live.dataset) {
          const here = new URL(window.location.href);  // what was said of the click is no news any more
          here.searchParams.delete("said");
          if (here.href === window.location.href) window.location.reload();
          else window.location.replace(here);
          return;
        }
      } else if (answer.status === 304) {
        await readLog();
      } else if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
        pause = 8000;
        tell("You are signed out here.", "Sign in");
        setTimeout(look, pause);
        return;
      } else if (answer.status === 404) {
        tell("This run is not kept any more.");
        return;
      } else {
        pause = 8000;
        tell("The server answers with an error (" + answer.status + "). Runs go on; this page tries again.", "See what it is");
        setTimeout(look, pause);
        return;
      }
      failures = 0;
      tell("");
    } catch (error) {
      failures += 1;
      pause = Math.min(8000, 1000 * 2 ** failures);
      if (failures > 1) tell("The server does not answer. Runs go on without it; this page tries again.");
    }
    setTimeout(look, pause);
  }

  // A note about the page itself; ``link`` loads it anew.
  function tell(text, link) {
    let note = document.getElementById("away");
    if (note && note.dataset.text === text) return;
    if (note) note.remove();
    if (!text) return;
    note = document.createElement("p");
    note.id = "away";
    note.className = "away";
    note.dataset.text = text;
    note.setAttribute("role", "alert");
    note.append(text);
    if (link) {
      const anew = document.createElement("a");
      anew.href = window.location.pathname + window.location.search;
      anew.textContent = link;
      note.append(" ", anew);
    }
    document.body.append(note);
  }

  // --- the log ---------------------------------------------------------------------------------------
  const log = document.querySelector("[data-log]");
  let lines = log ? log.textContent : "";

  async function readLog() {
    if (!log) return;
    for (;;) {
      const answer = await fetch(log.dataset.log + "?after=" + log.dataset.next, { cache: "no-store" });
      if (!answer.ok) return;
      const told = await answer.json();
      log.dataset.next = told.next;
      if (!told.text) return;
      lines += told.text;
      if (lines.length > 400000) {
        lines = lines.slice(-300000);
        showLog();
      } else {
        showLog(told.text);
      }
    }
  }

  // Lines that are new are added to those there, so that what somebody has marked to copy stays marked.
  function showLog(added) {
    const word = (filter ? filter.value : "").toLowerCase();
    const wanted = (text) => text.split("\n").filter((line) => line.toLowerCase().includes(word)).join("\n");
    const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
    if (added && !word) log.append(added);
    else log.textContent = word ? wanted(lines) : lines;
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  const filter = log && document.querySelector("[data-filter=log]");
  if (filter) filter.addEventListener("input", () => showLog());
  if (log) log.scrollTop = log.scrollHeight;

  // --- small things ------------------------------------------------------------------------------------
  function localTimes(under) {
    $("time[datetime]", under).forEach((time) => {
      const moment = new Date(time.getAttribute("datetime"));
      if (!isNaN(moment)) {
        const year = moment.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
        time.textContent = moment.toLocaleString(
          [], { ...year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
        time.title = time.getAttribute("datetime");
      }
    });
  }
  localTimes(document);

  setInterval(function () {
    $("[data-until]").forEach((place) => {
      const left = Math.max(0, Math.ceil((new Date(place.dataset.until) - Date.now()) / 1000));
      place.textContent = left + " s";
    });
  }, 500);

  document.addEventListener("submit", function (event) {
    const ask = event.target.dataset.confirm;
    if (ask && !window.confirm(ask)) {
      event.preventDefault();
      return;
    }
    const button = event.submitter;
    if (button && button.dataset.busy) {
      button.textContent = button.dataset.busy;
      button.setAttribute("aria-busy", "true");
    }
  });

  // The chosen trainer's parameters, and the schemas that it can train.
  const trainer = document.querySelector("[data-trainer]");
  function chosen() {
    const option = trainer.selectedOptions[0];
    document.getElementById("trainer-about").textContent = option.dataset.about;
    $("[data-params]").forEach((part) => { part.hidden = part.dataset.params !== trainer.value; });
    const kinds = option.dataset.kinds.split(" ");
    $("input[data-kind]").forEach((box) => {
      const can = kinds.includes(box.dataset.kind);
      if (!can) box.checked = false;
      box.disabled = !can;
    });
  }
  if (trainer) {
    trainer.addEventListener("change", chosen);
    chosen();
  }
  $("select[data-opens]").forEach(function (select) {
    const inside = document.getElementById(select.dataset.opens);
    const follow = () => { inside.hidden = select.value !== "on"; };
    select.addEventListener("change", follow);
    follow();
  });

  if (live) setTimeout(look, wait);
})();
