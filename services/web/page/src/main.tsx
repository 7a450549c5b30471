import { render } from "preact";
import { App } from "./app";
import { logIn } from "./login";
import { rest, start } from "./store";

const root = document.getElementById("app");
if (root) {
  void logIn().finally(() => {
    root.replaceChildren();
    render(<App />, root);
    rest();
    void start();
  });
  // A link that is followed in a tab which shows the page already loads nothing: the address alone changes.
  addEventListener("hashchange", () => void logIn().then((used) => (used ? start() : undefined)));
}
