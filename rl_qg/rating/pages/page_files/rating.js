// What the pages do more with a script: sliders that begin unset, saving as one goes, keys. Without it all forms work.
"use strict";

const SOON = 300; // milliseconds after a change until it is sent
const LONGEST = 5000; // milliseconds that sending may take
const main = document.querySelector("form[data-main]");
const rating = document.getElementById("rating");
document.documentElement.classList.add("script");

function makeSlider(slider) {
  const box = document.getElementById(slider.dataset.box);
  const set = () => {
    box.checked = true;
    slider.classList.remove("unset");
    slider.removeAttribute("aria-valuetext");
  };
  if (!box.checked) {
    slider.classList.add("unset");
    slider.setAttribute("aria-valuetext", rating.dataset.notRated);
  }
  slider.addEventListener("input", set);
  // A press on the middle, or the space bar, leaves the value where it stands: that too is a rating.
  const stay = () => {
    if (box.checked) return;
    set();
    slider.dispatchEvent(new Event("change", { bubbles: true }));
  };
  slider.addEventListener("click", stay);
  slider.addEventListener("pointerup", stay); // a finger on a slider makes no click
  slider.addEventListener("keydown", (event) => {
    if (event.key !== " ") return;
    event.preventDefault();
    stay();
  });
}

// One request at a time, so that an older value never arrives after a newer one.
let sending = Promise.resolve();
let timer = 0;

async function send() {
  const status = document.getElementById("status");
  const body = new URLSearchParams(new FormData(rating));
  body.set("action", "autosave");
  status.textContent = rating.dataset.saving;
  try {
    const signal = AbortSignal.timeout(LONGEST);
    const address = rating.getAttribute("action"); // rating.action is the buttons of that name
    const answer = await fetch(address, { method: "POST", body, keepalive: true, redirect: "error", signal });
    status.textContent = answer.ok ? rating.dataset.saved : rating.dataset.notSaved;
  } catch {
    status.textContent = rating.dataset.notSaved;
  }
}

function flush() {
  if (!timer) return;
  clearTimeout(timer);
  timer = 0;
  sending = sending.then(send);
}

if (rating) {
  rating.querySelectorAll("input[type=range]").forEach(makeSlider);
  if (rating.dataset.autosave) {
    rating.addEventListener("change", () => {
      clearTimeout(timer);
      timer = setTimeout(flush, SOON);
    });
    document.addEventListener("visibilitychange", () => document.hidden && flush());
    addEventListener("pagehide", flush);
  }
}

if (main) {
  let leaving = false;
  // What is being saved arrives first; a second press while the page leaves does nothing.
  main.addEventListener("submit", (event) => {
    if (leaving) {
      event.preventDefault();
      return;
    }
    clearTimeout(timer);
    timer = 0;
    leaving = true;
    const button = event.submitter;
    event.preventDefault();
    sending.finally(() => {
      const chosen = document.createElement("input");
      chosen.type = "hidden";
      if (button && button.name) {
        [chosen.name, chosen.value] = [button.name, button.value];
        main.append(chosen);
      }
      main.submit();
      chosen.remove();
    });
  });
  addEventListener("pageshow", () => (leaving = false));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      const first = main.querySelector(".first"); // after a practice question it is a link
      if (first instanceof HTMLAnchorElement) first.click();
      else main.requestSubmit(first);
    }
  });
}
