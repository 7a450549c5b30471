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
}
