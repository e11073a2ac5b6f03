"use strict";
document.getElementById("again").addEventListener("click", () => window.location.reload());

/* Keys reach the terminal without a click. */
const takeKeys = () => document.querySelector(".xterm-helper-textarea")?.focus();
window.addEventListener("focus", takeKeys);
new MutationObserver(takeKeys).observe(document.body, { attributes: true, attributeFilter: ["class"] });
