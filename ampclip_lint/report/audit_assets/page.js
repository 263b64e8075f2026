// Filters, keys and the theme. Without it the page shows everything.
"use strict";
(function () {
  const root = document.documentElement;
  const form = document.getElementById("filters");
  const search = document.getElementById("search");
  const theme = document.getElementById("theme");
  const items = [...document.querySelectorAll("[data-item]")];
  const groups = [...document.querySelectorAll("[data-group]")];
  const selects = [...form.querySelectorAll("select")];

  function wanted(item, words) {
    for (const select of selects) {
      const own = item.dataset[select.name];
      // A control says nothing about items that have no such property.
      if (select.value && own !== undefined && own !== select.value) return false;
    }
    return words.every((word) => item.dataset.text.includes(word));
  }

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = {}, all = {};
    for (const item of items) {
      const kind = item.dataset.item;
      item.hidden = !wanted(item, words);
      all[kind] = (all[kind] || 0) + 1;
      shown[kind] = (shown[kind] || 0) + (item.hidden ? 0 : 1);
    }
    for (const group of groups) group.hidden = !group.querySelector("[data-item]:not([hidden])");
    for (const count of document.querySelectorAll("[data-count]")) {
      const kind = count.dataset.count;
      const part = shown[kind] || 0, whole = all[kind] || 0;
      count.textContent = part === whole ? String(whole) : part + " of " + whole;
    }
  }

  function reset() {
    form.reset();
    apply();
  }

  function target() {
    const found = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!found || !found.matches("[data-item]")) return;
    if (found.hidden) reset();
    if (found.tagName === "DETAILS") found.open = true;
    found.scrollIntoView();
    found.focus({ preventScroll: true });
  }

  function move(by) {
    const seen = items.filter((item) => item.dataset.item === "finding" && !item.hidden);
    if (!seen.length) return;
    const at = seen.findIndex((item) => item.contains(document.activeElement));
    const next = at < 0 ? (by > 0 ? 0 : seen.length - 1) : Math.min(Math.max(at + by, 0), seen.length - 1);
    seen[next].focus();
    seen[next].scrollIntoView({ block: "start" });
  }

  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  form.hidden = false;
  theme.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("show-all").addEventListener("click", reset);
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(dark()));
  });
  for (const link of document.querySelectorAll("a[data-filter]")) {
    link.addEventListener("click", () => {
      form.elements[link.dataset.filter].value = link.dataset.value;
      apply();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search && event.key === "Escape") {
      search.value = "";
      apply();
      search.blur();
    }
    if (event.target.closest("input, select, textarea")) return;
    if (event.key === "/") {
      event.preventDefault();
      search.focus();
    } else if (event.key === "j" || event.key === "k") {
      move(event.key === "j" ? 1 : -1);
    }
  });
  addEventListener("hashchange", target);
  apply();
  target();
})();
