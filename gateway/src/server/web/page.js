// Replaces the page's contents with those of a new page each second.
"use strict";

const EVERY_MILLISECONDS = 1000;
const LIMIT_MILLISECONDS = 8000;
// Longest time for which a selected text keeps the contents as they are.
const HOLD_MILLISECONDS = 60000;

let selectedSince = null;

// Whether somebody may be copying a text. Who forgets it gets new contents all the same.
function isHeld() {
  if (document.getSelection().isCollapsed) selectedSince = null;
  else selectedSince ??= performance.now();
  return selectedSince !== null && performance.now() - selectedSince < HOLD_MILLISECONDS;
}

async function refresh() {
  const answer = await fetch("/", {
    cache: "no-store",
    signal: AbortSignal.timeout(LIMIT_MILLISECONDS),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("main");
  if (!fresh) throw new Error("the answer is not this page");
  // Selected meanwhile.
  if (isHeld()) return;
  document.title = page.title;
  document.querySelector("main").replaceWith(document.adoptNode(fresh));
}

// Says how old the contents are. A screen reader speaks what is written, so the same is not
// written again.
function say(text, isStale) {
  const note = document.getElementById("refresh");
  if (note.textContent !== text) note.textContent = text;
  document.body.classList.toggle("stale", isStale);
  if (isStale) document.title = "zgate: not refreshed";
}

async function turn() {
  if (document.hidden) {
    // Nobody looks, but at the title: a verdict there would be an old one.
    document.title = "zgate";
  } else if (!isHeld()) {
    try {
      await refresh();
      say("refreshed each second ·", false);
    } catch (error) {
      say(`not refreshed: ${error.message} ·`, true);
    }
  } else if (!document.body.classList.contains("stale")) {
    say("not refreshed while a text is selected ·", false);
  }
  setTimeout(turn, EVERY_MILLISECONDS);
}

setTimeout(turn, EVERY_MILLISECONDS);
