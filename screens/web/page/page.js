"use strict";
document.getElementById("again").addEventListener("click", () => window.location.reload());

/* The token stays in this tab's storage, which belongs to this origin and port alone. */
const given = new URLSearchParams(window.location.hash.slice(1)).get("token");
if (given) {
  window.sessionStorage.setItem(window.location.pathname, given);
  window.history.replaceState(null, "", window.location.pathname + window.location.search);
}
window.addEventListener("hashchange", () => window.location.reload());

/* textual.js opens the websocket, after this script. The token is its first message. */
window.WebSocket = class extends WebSocket {
  constructor(address) {
    super(address);
    const token = window.sessionStorage.getItem(window.location.pathname) ?? "";
    this.addEventListener("open", () => this.send(JSON.stringify(["token", token])));
    this.addEventListener("close", (event) => {
      if (event.reason) document.getElementById("why").textContent = event.reason;
    });
  }
};

/* Keys reach the terminal without a click. */
const takeKeys = () => document.querySelector(".xterm-helper-textarea")?.focus();
window.addEventListener("focus", takeKeys);
new MutationObserver(takeKeys).observe(document.body, { attributes: true, attributeFilter: ["class"] });
