// Keeps the page current. The server sends each section that changed, as HTML. Elements that
// did not change stay in place, so focus, selection and typed text are kept. Without this
// script the page reloads itself.
"use strict";
(() => {
  const link = document.getElementById("link");
  const answered = document.getElementById("answer");
  const parser = new DOMParser();

  const key = (n) => n.nodeType === Node.ELEMENT_NODE ? n.tagName + "|" + (n.id || n.getAttribute("data-key") || "") : n.nodeType;

  function attributes(to, from) {
    for (const a of [...to.attributes]) {
      if (a.name === "open") continue; // the reader's
      if (!from.hasAttribute(a.name)) to.removeAttribute(a.name);
    }
    for (const a of from.attributes) {
      if (to.getAttribute(a.name) !== a.value) to.setAttribute(a.name, a.value);
    }
  }

  // morph makes the children of one element those of another.
  function morph(to, from) {
    let at = to.firstChild;
    for (const want of [...from.childNodes]) {
      let have = at;
      while (have && key(have) !== key(want)) have = have.nextSibling;
      if (!have) {
        to.insertBefore(document.importNode(want, true), at);
        continue;
      }
      // What lies before the match is gone, unless it is wanted later.
      if (have !== at) to.insertBefore(have, at);
      at = have.nextSibling;
      if (want.nodeType === Node.ELEMENT_NODE) {
        if (!have.isEqualNode(want)) {
          attributes(have, want);
          morph(have, want);
        }
      } else if (have.nodeValue !== want.nodeValue) {
        have.nodeValue = want.nodeValue;
      }
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  const mine = document.body.dataset.version;
  const events = new EventSource(document.body.dataset.events);
  const state = (how, text) => {
    if (link.textContent === text) return;
    link.className = "live " + how;
    link.textContent = text;
  };
  events.addEventListener("open", () => state("on", link.dataset.live));
  events.addEventListener("error", () => state("lost", link.dataset.lost));
  events.addEventListener("hello", (e) => {
    if (e.data !== mine) location.reload(); // the server was replaced
  });
  events.addEventListener("sections", (e) => {
    const sections = JSON.parse(e.data);
    for (const id of Object.keys(sections)) {
      const to = document.getElementById(id);
      if (!to) continue;
      if (id === "latest") {
        if (to.textContent !== sections[id]) to.textContent = sections[id];
        continue;
      }
      morph(to, parser.parseFromString(sections[id], "text/html").body);
    }
    document.documentElement.dataset.updates = String(Number(document.documentElement.dataset.updates || 0) + 1);
  });
  addEventListener("pagehide", () => events.close());
  addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });

  // Forms that act are sent without leaving the page.
  document.addEventListener("submit", async (e) => {
    const form = e.target;
    if (!form.getAttribute("action").startsWith("actions/")) return;
    e.preventDefault();
    const report = (text, bad) => {
      answered.className = bad ? "answer bad" : "answer";
      answered.textContent = text;
    };
    try {
      const answer = await fetch(form.action, {
        method: "POST", body: new URLSearchParams(new FormData(form)), headers: { Accept: "text/plain" }, redirect: "error",
      });
      report((await answer.text()).trim(), !answer.ok);
    } catch (err) {
      report("The actuator did not answer: " + err.message, true);
    }
  });
})();
