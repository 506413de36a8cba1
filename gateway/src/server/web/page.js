// Replaces the page's contents with those of a new page each second.
"use strict";

const EVERY_MILLISECONDS = 1000;
const LIMIT_MILLISECONDS = 8000;

async function refresh() {
  const answer = await fetch("/", {
    cache: "no-store",
    signal: AbortSignal.timeout(LIMIT_MILLISECONDS),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("main");
  if (!fresh) throw new Error("the answer is not this page");
  document.title = page.title;
  document.querySelector("main").replaceWith(document.adoptNode(fresh));
}

async function turn() {
  const note = document.getElementById("refresh");
  // Nobody looks, or somebody is copying a text.
  if (!document.hidden && document.getSelection().isCollapsed) {
    try {
      await refresh();
      note.textContent = "refreshed each second ·";
      document.body.classList.remove("stale");
    } catch (error) {
      note.textContent = `not refreshed: ${error.message} ·`;
      document.body.classList.add("stale");
    }
  }
  setTimeout(turn, EVERY_MILLISECONDS);
}

setTimeout(turn, EVERY_MILLISECONDS);
